"""C++ library that reads candidates' traces, compiled on first use and kept for later runs.

It needs the headers of TVM's FFI, which are installed with it, and the compiler that TVM links with. Without
a compiler or a writable folder, Python's reader gives the same numbers several times slower.
"""

from __future__ import annotations

import functools
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.support import cc
from tvm_ffi import libinfo

from wmsched.toolchain.compile_cache import compile_to, kept

__all__ = ["library"]

logger = logging.getLogger("wmsched")

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "trace_columns.cc"
SOURCES = [*FOLDER.glob("*.h"), SOURCE]
OPTIONS = ("-std=c++17", "-pthread", "-fvisibility=hidden")


@functools.cache
def library() -> Any | None:
    """Return the compiled module (``column_names``, ``reader``, ``drawn_reader``); None if that fails."""
    try:
        path = _kept()
        if path.is_file():
            with suppress(Exception):  # truncated, or of another machine: compile again
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
    """Return the path of the compiled library of these sources and this FFI."""
    return kept("trace_columns", sorted(SOURCES), tvm_ffi.__version__, *OPTIONS)


def _compile(path: Path) -> None:
    ffi = Path(libinfo.find_libtvm_ffi())
    options = [*OPTIONS, str(SOURCE), f"-I{libinfo.find_include_path()}"]
    options += [f"-I{libinfo.find_dlpack_include_path()}", str(ffi), f"-Wl,-rpath,{ffi.parent}"]
    compile_to(path, cc.get_cc(), options)
