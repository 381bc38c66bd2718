"""What a process loads: a library's file as it is now, and arrays whose memory TVM takes as it is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ALIGNED", "aligned", "loadable"]

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
