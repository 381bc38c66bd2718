"""The C++ that reads candidates' traces (`native/`), compiled when first needed and kept for later runs.

It needs TVM's FFI alone, whose headers are installed with it, and the compiler that TVM links programs with.
Where there is none, or nothing can be written, a search goes on with Python's reader, which is several times
slower and gives the same numbers.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.support import cc
from tvm_ffi import libinfo

__all__ = ["library"]

logger = logging.getLogger("wmsched")

FOLDER = Path(__file__).resolve().parent / "native"
SOURCE = FOLDER / "trace_columns.cc"
OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden")


@functools.cache
def library() -> Any | None:
    """Module of ``column_names()`` and ``reader``; None, and a warning, without."""
    try:
        path = _kept()
        if path.is_file():
            with suppress(Exception):  # cut short by a full disk, or of another machine: made anew
                return tvm_ffi.load_module(str(path))
        _compile(path)
        return tvm_ffi.load_module(str(path))
    except Exception as error:
        logger.warning(
            "wmsched: candidates are read in Python, several times slower: their C++ reader could not be "
            "compiled or loaded (%s: %s)",
            type(error).__name__,
            str(error)[-300:],
        )
        return None


def _kept() -> Path:
    """Where the compiled library of these sources and this FFI is, or will be."""
    digest = hashlib.sha256(" ".join((tvm_ffi.__version__, *OPTIONS)).encode())
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in (".h", ".cc"):
            digest.update(path.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wmsched" / f"trace_columns-{digest.hexdigest()[:16]}.so"


def _compile(path: Path) -> None:
    """Compile to `path`; another process that does so at the same time writes the same."""
    compiler = cc.get_cc()
    if not compiler:
        raise FileNotFoundError("no C++ compiler: install g++, or name one in the environment variable CXX")
    path.parent.mkdir(parents=True, exist_ok=True)
    logger.info("wmsched: compiling the C++ reader of candidates to %s, once", path)
    handle, fresh = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    ffi = Path(libinfo.find_libtvm_ffi())
    command = [compiler, "-shared", *OPTIONS, "-o", fresh, str(SOURCE)]
    command += [f"-I{libinfo.find_include_path()}", f"-I{libinfo.find_dlpack_include_path()}"]
    command += [str(ffi), f"-Wl,-rpath,{ffi.parent}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr[-300:]}")
        os.chmod(fresh, 0o755)
        os.replace(fresh, path)
    finally:
        Path(fresh).unlink(missing_ok=True)
