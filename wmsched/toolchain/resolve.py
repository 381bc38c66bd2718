"""Find and import the right TVM: AutoScheduler's and MetaSchedule's share one package name.

AutoScheduler left TVM in 0.20, and no apache-tvm wheel on PyPI has it. The two TVMs can share a virtual
environment, but not a process. All of wmsched imports TVM through this module.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from wmsched.base.cores import configure_before_import, usable_cores
from wmsched.base.errors import EnvironmentProblem
from wmsched.toolchain import cuda, python_path
from wmsched.toolchain.alias_tags import SITE, ensure_right_code
from wmsched.toolchain.host_cpu import host_cpu
from wmsched.toolchain.worker_pools import kill_on_delete

WHEEL_FOLDER = "tvm-ansor"
OLD_SITECUSTOMIZE = "import numpy\nnumpy.float_ = numpy.float64\n"  # from earlier releases of `install`
HOW_TO_GET = (
    "run `wmsched setup-tvm` (it puts a wheel that has AutoScheduler beside your packages and touches "
    "nothing else), or put your own TVM 0.8-0.19 on PYTHONPATH, or name its folder in WMSCHED_TVM"
)
_log = logging.getLogger(__name__)


def default_folder() -> Path:
    """Return the folder of `install`'s TVM, inside the running virtual environment."""
    return Path(sys.prefix) / WHEEL_FOLDER


def autoscheduler_tvm() -> ModuleType:
    """Import and return the TVM that has AutoScheduler.

    The first match wins: the TVM of a plain ``import tvm`` if it has ``auto_scheduler``, the folder in
    ``WMSCHED_TVM``, ``<sys.prefix>/tvm-ansor``. ``PYTHONPATH`` is exported so that TVM's builder and runner
    processes find the same one.

    Returns
    -------
    tvm : ModuleType
        The module, with ``tvm.auto_scheduler`` imported.

    Raises
    ------
    EnvironmentProblem
        Another TVM is imported already, or none with AutoScheduler can be found or imported.
    """
    configure_before_import()
    loaded = sys.modules.get("tvm")
    if loaded is not None:
        if not _has_auto_scheduler(_package_folder(loaded)):
            raise EnvironmentProblem(
                f"this process has already imported TVM {getattr(loaded, '__version__', '?')} from "
                f"{_package_folder(loaded)}, which has no AutoScheduler, and two TVMs in one process "
                f"crash it: start a new process for AutoScheduler. If you have no TVM with it: {HOW_TO_GET}"
            )
        return _import_auto_scheduler()
    if (
        "tvm_ffi" in sys.modules
    ):  # apache-tvm's own runtime library: loaded beside an older one, the two clash
        raise EnvironmentProblem(
            "this process has already imported apache-tvm's tvm_ffi, which clashes with AutoScheduler's TVM: "
            "start a new process for AutoScheduler"
        )
    root = find_autoscheduler_root()
    if root is None:
        found = importlib.util.find_spec("tvm")
        seen = f"the TVM at {found.origin} has none" if found and found.origin else "no TVM is installed"
        raise EnvironmentProblem(f"AutoScheduler's TVM was not found ({seen}): {HOW_TO_GET}")
    python_path.prepend(root)
    _alias_numpy(root)
    if str(root) not in sys.path or _first_tvm() != root:
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
    return _import_auto_scheduler()


def meta_schedule_tvm() -> ModuleType:
    """Import and return the TVM that has ``tvm.s_tir.meta_schedule`` (apache-tvm 0.27).

    Folders whose TVM has AutoScheduler are removed from this process's ``sys.path`` and ``PYTHONPATH``.

    Raises
    ------
    EnvironmentProblem
        AutoScheduler's TVM is imported already, or apache-tvm is not installed.
    """
    configure_before_import()
    loaded = sys.modules.get("tvm")
    if loaded is not None and not _has_meta_schedule(_package_folder(loaded)):
        raise EnvironmentProblem(
            f"this process has already imported the TVM in {_package_folder(loaded)}, which has no "
            "tvm.s_tir.meta_schedule, and two TVMs in one process crash it: "
            "start a new process for MetaSchedule"
        )
    if loaded is None:
        others = {str(root) for root in _roots_on_path() if not _has_meta_schedule(root / "tvm")}
        if any(_has_meta_schedule(root / "tvm") for root in _roots_on_path()):
            sys.path[:] = [entry for entry in sys.path if str(Path(entry or ".").resolve()) not in others]
            python_path.export([e for e in python_path.entries() if str(Path(e).resolve()) not in others])
            importlib.invalidate_caches()
        cuda.use()
    try:
        tvm = importlib.import_module("tvm")
        importlib.import_module("tvm.s_tir.meta_schedule")
    except ImportError as error:
        raise EnvironmentProblem(
            f"MetaSchedule's TVM cannot be imported ({error}): "
            "pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post0"
        ) from error
    return tvm


def find_autoscheduler_root() -> Path | None:
    """Return the ``sys.path`` entry of AutoScheduler's TVM, without importing it; None if there is none."""
    first = _first_tvm()
    if first is not None and _has_auto_scheduler(first / "tvm"):
        return first
    named = os.environ.get("WMSCHED_TVM")
    for root in ([Path(named).resolve()] if named else []) + [default_folder()]:
        for candidate in (root, root / "python"):  # a source checkout keeps its package in python/
            if _has_auto_scheduler(candidate / "tvm"):
                return candidate
    return None


def host_target() -> str:
    """Return the LLVM target of this machine, as TVM prints and logs it without ``-keys``.

    Returns
    -------
    str
        For example ``llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2``. The triple is always
        present, because the wheel's LLVM defaults to riscv64. A CPU newer than TVM's LLVM has the
        name of the closest older one (`host_cpu`).
    """
    autoscheduler_tvm()
    return _host_target()


def _host_target() -> str:
    target = importlib.import_module("tvm.target")
    codegen = importlib.import_module("tvm.target.codegen")
    triple = host_triple()
    cpu = host_cpu(codegen, target.Target, triple)
    mcpu = f" -mcpu={cpu}" if cpu else ""
    return f"llvm -mtriple={triple}{mcpu} -num-cores={usable_cores()}"


def host_triple() -> str:
    """Return the LLVM triple of this machine."""
    return f"{platform.machine()}-{'apple-darwin' if sys.platform == 'darwin' else 'linux-gnu'}"


def is_cpu(target: Any) -> bool:
    """Return whether a target, TVM's or a text such as "llvm -mcpu=znver4", is a CPU."""
    name = target if isinstance(target, str) else str(target.kind.name)
    return name.split()[0] in ("llvm", "c")


def device_name(target: Any) -> str:
    """Return the name of the target's device in TVM's runtime: "cpu", "cuda", ..."""
    return "cpu" if is_cpu(target) else str(target.kind.name)


def check_linker(cc: Any) -> None:
    """Raise EnvironmentProblem if TVM's module `cc` finds no C++ compiler to link programs with."""
    if not cc.get_cc():
        raise EnvironmentProblem(
            "a compiled program needs a C++ compiler to link it, and none is here: install gcc or clang, "
            "or name one in the environment variable CXX"
        )


def _has_auto_scheduler(package: Path) -> bool:
    return (package / "auto_scheduler" / "__init__.py").is_file()


def _has_meta_schedule(package: Path) -> bool:
    return (package / "s_tir" / "meta_schedule" / "__init__.py").is_file()


def _package_folder(module: ModuleType) -> Path:
    return Path(str(module.__file__)).resolve().parent if module.__file__ else Path("(no file)")


def _roots_on_path() -> Iterator[Path]:
    for entry in sys.path:
        root = Path(entry or ".").resolve()
        if (root / "tvm" / "__init__.py").is_file():
            yield root


def _first_tvm() -> Path | None:
    """Return the folder from which ``import tvm`` imports, editable installs included; None without TVM."""
    try:
        spec = importlib.util.find_spec("tvm")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve().parents[1] if spec is not None and spec.origin else None


def _alias_numpy(root: Path) -> None:
    """Restore ``numpy.float_`` here and in child processes, if this TVM uses it.

    Works around TVM 0.16 with numpy 2; remove when no supported TVM uses the name.
    """
    import numpy

    if hasattr(numpy, "float_") and (root / "sitecustomize.py").is_file():
        return
    source = root / "tvm" / "_ffi" / "runtime_ctypes.py"
    if not source.is_file() or "float_" not in source.read_text(encoding="utf-8", errors="replace"):
        return
    if not hasattr(numpy, "float_"):
        numpy.float_ = numpy.float64  # type: ignore[attr-defined, misc]
    if not (root / "sitecustomize.py").is_file():
        python_path.prepend(SITE)


def _import_auto_scheduler() -> ModuleType:
    try:
        importlib.import_module("xgboost")  # before libtvm: the other order ends in free(): invalid pointer
        tvm = importlib.import_module("tvm")
        ansor = importlib.import_module("tvm.auto_scheduler")
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        raise EnvironmentProblem(f"AutoScheduler's TVM was found but does not import: {error!r}") from error
    if pools := getattr(getattr(ansor, "measure", None), "PopenPoolExecutor", None):  # TVM 0.8 has none
        kill_on_delete(pools)
    _ensure_right_code(tvm)
    return tvm


def _is_ours(folder: Path) -> bool:
    """Return whether `install` may replace the folder: it is empty, or made by `install`."""
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    mark = folder / "sitecustomize.py"
    text = mark.read_text(encoding="utf-8") if mark.is_file() else ""
    return text == OLD_SITECUSTOMIZE or "`wmsched setup-tvm`" in text


@functools.cache  # once for each process
def _ensure_right_code(tvm: ModuleType) -> None:
    if importlib.util.find_spec("tvm.te") is None:
        return
    # Our own wheel needs no warning: this process only started without its sitecustomize.py.
    if ensure_right_code(tvm, _host_target()) and not _is_ours(_package_folder(tvm).parent):
        _log.warning(
            "the TVM in %s gives wrong alias tags, with which LLVM compiles wrong programs; this process "
            "and those it starts build programs that get right ones",
            _package_folder(tvm),
        )
