"""A parallel launch that a busy machine does not hold up, in the place of TVM's (`parallel_launch.cc`).

TVM ties each thread of its pool to a core and gives each its part of a loop beforehand: on two cores beside
one busy program MobileNetV2 takes 216 ms instead of 3.8. In ours threads claim parts, none is tied to a core,
and loops sooner done than shared are run by the caller. A library that TVM's LLVM backend has made calls what
its global pointer `__TVMBackendParallelLaunch` holds. A library that is loaded is given ours; its file stays
as it is.

Works around TVM 0.16 to 0.27 (src/runtime/thread_pool.cc); remove when TVM's threads claim their parts.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path

from wmsched.base.cores import STARTED_IN, named_threads

__all__ = ["OFF", "compiler", "counts", "install", "launch_path", "leave_free", "replace_launch"]

OFF = "WMSCHED_PARALLEL_LAUNCH"  # an environment variable; "0" leaves TVM's own pool in place
COUNTS = ("alone", "shared", "by_workers", "wakes", "waits", "preempted", "moved")
SOURCE = Path(__file__).resolve().with_name("parallel_launch.cc")
HEADER = SOURCE.with_name("launch_sites.h")
OPTIONS = ("-std=c++17", "-pthread", "-fvisibility=hidden", "-ldl")

logger = logging.getLogger("wmsched")


def install(path: str | os.PathLike[str], threads: int = 0, *, compared: bool = False) -> bool:
    """Have a library that this process has loaded run its parallel loops by our launch.

    Call it after TVM has loaded the library, which fills in TVM's own launch, and before it is run.

    Parameters
    ----------
    path : str or Path
        The file that TVM loaded.
    threads : int
        How many run a loop, the caller included, in the whole process; 0: as many as TVM would take.
    compared : bool
        Whether programs are timed to be compared. Beside other programs long loops are otherwise tried on one
        thread, too, and stay there where that is faster.

    Returns
    -------
    bool
        Whether none of its loops is run by TVM's launch now. False where `replace_launch` says so, with `OFF`
        set to 0, and where our launch cannot be compiled.
    """
    launch = launch_path()
    if not launch:
        return False
    threads = threads or named_threads(os.environ)
    return replace_launch(os.fspath(path), launch, threads, STARTED_IN, compared=compared)


def replace_launch(
    library: str, launch: str, threads: int, processors: Iterable[int] = (), *, compared: bool = False
) -> bool:
    """As `install`, by itself: a runner's process gets the code of this function and may lack the package.

    Parameters
    ----------
    library : str
        The file that TVM loaded: a shared library, or an archive, which TVM has linked to one beside it.
    launch : str
        Of our compiled launch (`launch_path`).
    threads : int
    processors : iterable of int
        On which workers may run; none: where the caller may.
    compared : bool

    Returns
    -------
    bool
        Whether none of its loops is run by TVM's launch now; it may have none. False where it was not loaded
        from there or is launched by somebody else's function already, and where its parts wait for each
        other: they must all run at once, as TVM's do.

    Raises
    ------
    OSError
        `launch` cannot be loaded.
    """
    import ctypes
    import os
    import sys

    for file in (library, f"{library}.so"):
        try:
            loaded = ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            break
        except OSError:
            continue
    else:
        return False
    if hasattr(loaded, "__TVMBackendParallelBarrier"):
        return False
    if not hasattr(loaded, "__TVMBackendParallelLaunch"):
        return True
    ours = ctypes.CDLL(launch)
    numbers = sorted(processors)
    given = (ctypes.c_int * len(numbers))(*numbers)
    ours.wmsched_launch_configure(threads, given, len(numbers), int(compared))
    if "tvm_ffi" in sys.modules:  # an error is kept with its thread; AutoScheduler's TVM keeps a text alone
        from tvm_ffi import libinfo

        errors = ctypes.CDLL(libinfo.find_libtvm_ffi())
        ours.wmsched_launch_errors(errors.TVMFFIErrorMoveFromRaised, errors.TVMFFIErrorSetRaised)
    pointer = ctypes.c_void_p.in_dll(loaded, "__TVMBackendParallelLaunch")
    return bool(ours.wmsched_launch_replace(ctypes.byref(pointer)))


def leave_free(environment: MutableMapping[str, str]) -> None:
    """Have TVM's own pool, which fills buffers still, tie no thread to a core and sleep when it is done.

    Set before TVM first runs a loop by itself; what is set already stays. It would tie the caller, too.
    """
    environment.setdefault("TVM_BIND_THREADS", "0")
    environment.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")


def counts() -> dict[str, int]:
    """What launches of this process came to: see `COUNTS`. All 0 where ours is not to be had."""
    found = (ctypes.c_uint64 * len(COUNTS))()
    if launch := launch_path():
        ctypes.CDLL(launch).wmsched_launch_counts(found)
    return dict(zip(COUNTS, found, strict=True))


def launch_path() -> str:
    """The file of our launch, compiled when first needed; "" where it is off or cannot be had (said once)."""
    return "" if is_off(os.environ) else _compiled()


def is_off(environment: Mapping[str, str]) -> bool:
    """Whether an environment leaves TVM's own pool in place."""
    return environment.get(OFF, "") == "0"


@functools.cache
def _compiled() -> str:
    from wmsched.toolchain.compile_cache import compile_to, kept

    if not sys.platform.startswith("linux"):
        return ""  # threads sleep by futex
    try:
        path = kept("parallel_launch", [SOURCE, HEADER], *OPTIONS)
        if path.is_file() and _loads(path):
            return str(path)
        compile_to(path, compiler(), [str(SOURCE), *OPTIONS])
        ctypes.CDLL(str(path))
        return str(path)
    except Exception as error:
        logger.warning(
            "wmsched: models run on TVM's own threads, many times slower beside other programs: our launch "
            "of parallel loops cannot be compiled or loaded (%s: %s). Install g++; %s=0 says no more of it",
            type(error).__name__,
            str(error)[-300:],
            OFF,
        )
        return ""


def _loads(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path))
    except OSError:  # cut short by a full disk, or of another machine
        return False
    return True


def compiler() -> str | None:
    """The path of a C++ compiler; None where there is none. TVM, which would find one, need not be here."""
    named = os.environ.get("CXX")
    names = (named,) if named else ("g++", "clang++", "c++")
    return next(filter(None, map(shutil.which, names)), None)
