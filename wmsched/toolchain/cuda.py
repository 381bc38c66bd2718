"""CUDA's runtime and headers out of pip's packages, where no toolkit of its version is installed.

PyTorch's wheels, and `pip install nvidia-cuda-runtime nvidia-cuda-nvrtc`, put them under ``nvidia/cu13``
among Python's packages, where neither the loader nor TVM looks: apache-tvm then takes the machine for one
without a GPU, or finds no headers to compile with. On a machine without a driver nothing is done.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

MAJOR = 13  # of the CUDA that apache-tvm 0.27's wheel is linked with
RUNTIME, COMPILER = f"libcudart.so.{MAJOR}", f"libnvrtc.so.{MAJOR}"
#: Each with what it opens by name, which goes first.
LIBRARIES = {RUNTIME: (RUNTIME,), COMPILER: (f"libnvrtc-builtins.so.{MAJOR}.*", COMPILER)}
DRIVER = "libcuda.so.1"
_HEADER, _VERSION = "include/cuda_runtime.h", "include/cuda.h"


def use(load: Callable[[str], object] | None = None) -> None:
    """Have TVM, which must not be imported yet, and processes started later find CUDA.

    Parameters
    ----------
    load : callable, optional
        Loads a library by name or path, or raises OSError.
    """
    load = load or (lambda name: ctypes.CDLL(name, ctypes.RTLD_GLOBAL))
    folder = _packages()
    if folder is None or not _loads(load, DRIVER):
        return
    patterns = [one for name, parts in LIBRARIES.items() if not _loads(load, name) for one in parts]
    found = [path for pattern in patterns for path in sorted((folder / "lib").glob(pattern))]
    for path in found:  # a library of this name is loaded then, and no path is searched for it
        load(str(path))
    if found:
        paths = [str(folder / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    if "CUDA_PATH" not in os.environ and not _toolkit() and (folder / _HEADER).is_file():
        # with the short headers of `codegen.cuda_headers` these are enough
        os.environ["CUDA_PATH"] = str(folder)


def _loads(load: Callable[[str], object], name: str) -> bool:
    try:
        load(name)
    except OSError:
        return False
    return True


def _packages() -> Path | None:
    """pip's folder of CUDA 13; None if there is none."""
    folders = (Path(entry) / "nvidia" / f"cu{MAJOR}" for entry in sys.path if entry)
    return next((folder for folder in folders if (folder / "lib").is_dir()), None)


def _toolkit() -> bool:
    """Whether TVM finds headers by itself: it looks beside the folder of `nvcc`, which may be a wrapper.

    An older toolkit's are not for the compiler that TVM is linked with.
    """
    nvcc = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    folder = nvcc.resolve().parents[1]
    if not (folder / _HEADER).is_file():
        return False
    try:
        told = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", (folder / _VERSION).read_text(errors="replace"))
    except OSError:
        return True  # as its maker has it
    return told is None or int(told[1]) >= 1000 * MAJOR
