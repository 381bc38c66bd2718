"""What a process loads: a library's file as it is now, and arrays whose memory TVM takes as it is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from wmsched.base.errors import WmschedError
from wmsched.toolchain.host_cpu import absent
from wmsched.toolchain.targets import crashes_here

__all__ = ["ALIGNED", "address", "aligned", "check_processor", "loadable"]

ALIGNED = 64  # bytes; TVM's programs load vectors from where it would have put a tensor itself


def aligned(like: Any) -> tuple[Any, Any] | None:
    """An array of the shape and type of another, and TVM's tensor of its memory; None where TVM takes none.

    To make a tensor for each call takes TVM 20 microseconds.
    """
    import tvm_ffi

    memory = np.empty(like.nbytes + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    found = memory[start : start + like.nbytes].view(like.dtype).reshape(like.shape)
    try:
        return found, tvm_ffi.from_dlpack(found)
    except Exception:  # of a type that numpy does not pass on
        return None


def address(tensor: Any) -> int:
    """Return where a tensor of TVM's lies; 0 without elements."""
    return int(tensor.data_ptr()) if tensor.numel() else 0


def check_processor(library: Path, about: Mapping[str, Any], target: Any) -> None:
    """Raise WmschedError where this processor lacks what a library's programs need.

    Parameters
    ----------
    about : mapping
        The ``model.json`` beside the library.
    target : tvm.target.Target
    """
    if wrong := crashes_here(target):
        raise WmschedError(
            f"{library} was built for another processor ({about['target']}): its programs {wrong}; tune "
            "the model on this machine, or with the --target of one like it"
        )
    for setting, kind in (("eight_bits", "eight_bit"), ("bf16", "bfloat16")):
        wanted = about.get(f"{kind}_instructions", ()) if about.get(setting) else ()
        if missing := absent(wanted):
            raise WmschedError(
                f"{library} computes in {kind.replace('_bit', ' bits')} by {', '.join(missing)}, which "
                "this processor has not; compile the model on this machine"
            )


_loaded: dict[str, tuple[int, int]] = {}  # by path: the file of it that this process has loaded


@contextmanager
def loadable(library: Path) -> Iterator[Path]:
    """A path that loads what is in the file now.

    A library that this process has loaded from a path before is what it gets there again, whatever the file
    is by then: a folder that was tuned anew has another name for it.
    """
    path = library.resolve()
    file = path.stat()
    known = _loaded.setdefault(str(path), (file.st_dev, file.st_ino))
    if known == (file.st_dev, file.st_ino):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="wmsched-") as folder:
        fresh = Path(folder) / path.name
        shutil.copyfile(path, fresh)
        yield fresh
