"""Find CUDA's runtime and headers in pip's packages where no matching toolkit is installed.

PyTorch's wheels, and `pip install nvidia-cuda-runtime nvidia-cuda-nvrtc`, install them under ``nvidia/cu13``.
Neither the loader nor TVM searches that folder, so apache-tvm finds no GPU or no headers. Machines without a
CUDA driver are left alone.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

MAJOR = 13  # CUDA version that the wheel of apache-tvm 0.27 is linked with
RUNTIME, COMPILER = f"libcudart.so.{MAJOR}", f"libnvrtc.so.{MAJOR}"
#: Files to load for each library, in order: NVRTC opens its builtins by name.
LIBRARIES = {RUNTIME: (RUNTIME,), COMPILER: (f"libnvrtc-builtins.so.{MAJOR}.*", COMPILER)}
DRIVER = "libcuda.so.1"
_HEADER, _VERSION = "include/cuda_runtime.h", "include/cuda.h"


def use(load: Callable[[str], object] | None = None) -> None:
    """Make CUDA visible to TVM and to child processes; call it before TVM is imported.

    Parameters
    ----------
    load : callable, optional
        Loads a library by name or path, or raises OSError.
    """
    load = load or (lambda name: ctypes.CDLL(name, ctypes.RTLD_GLOBAL))
    folder = pip_folder()
    if folder is None or not _loads(load, DRIVER):
        return
    patterns = [one for name, parts in LIBRARIES.items() if not _loads(load, name) for one in parts]
    found = [path for pattern in patterns for path in sorted((folder / "lib").glob(pattern))]
    for path in found:  # the loader does not search for a library that is already loaded
        load(str(path))
    if found or "torch" in sys.modules:  # whose wheel's libraries child processes without it need too
        paths = [str(folder / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    if "CUDA_PATH" not in os.environ and not _toolkit() and (folder / _HEADER).is_file():
        # enough with the short headers of `codegen.cuda_headers`
        os.environ["CUDA_PATH"] = str(folder)


def check_libraries() -> None:
    """Raise ImportError, OSError or RuntimeError if this process cannot compile CUDA programs by itself.

    NVRTC must answer, unless `TVM_CUDA_COMPILE_MODE` asks for `nvcc`. Where there is a driver, TVM's runtime
    for CUDA needs CUDA's.
    """
    if os.environ.get("TVM_CUDA_COMPILE_MODE") != "nvcc":
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    if _loads(ctypes.CDLL, DRIVER):
        ctypes.CDLL(RUNTIME)


def _loads(load: Callable[[str], object], name: str) -> bool:
    try:
        load(name)
    except OSError:
        return False
    return True


def pip_folder() -> Path | None:
    """Return pip's folder of CUDA 13; None if there is none."""
    folders = (Path(entry) / "nvidia" / f"cu{MAJOR}" for entry in sys.path if entry)
    return next((folder for folder in folders if (folder / "lib").is_dir()), None)


def _toolkit() -> bool:
    """Return whether TVM finds headers of this CUDA version by itself, next to the folder of `nvcc`.

    `nvcc` may be a wrapper. Headers of an older toolkit do not fit the NVRTC that TVM is linked with.
    """
    nvcc = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    folder = nvcc.resolve().parents[1]
    if not (folder / _HEADER).is_file():
        return False
    try:
        version = re.search(
            r"#define\s+CUDA_VERSION\s+(\d+)", (folder / _VERSION).read_text(errors="replace")
        )
    except OSError:
        return True  # no version file: trust the toolkit
    return version is None or int(version[1]) >= 1000 * MAJOR
