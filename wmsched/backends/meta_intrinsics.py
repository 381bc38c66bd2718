"""Tensor intrinsics of the target at hand, in place of all that TVM has.

MetaSchedule imports `tvm.s_tir.tensor_intrin` before its first task. That package imports the intrinsics of
all kinds of machines, and parsing CUDA's takes half a minute of processor time, without a GPU too.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from wmsched.resolve import is_cpu

PACKAGE = "tvm.s_tir.tensor_intrin"


class _Intrinsics(ModuleType):
    """The package with what was asked for; its other modules are imported when they are first named."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return importlib.import_module(f"{PACKAGE}.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"{PACKAGE} has no {name!r}") from error


def import_intrinsics(target: Any) -> None:
    """Register the tensor intrinsics that schedules for `target` may use; the others stay importable.

    x86 takes 0.2 s so, where the whole package takes 29. Targets of other kinds than x86 and ARM, which may
    need any of them, get the whole package, as does a process that has imported it already.

    Parameters
    ----------
    target : tvm.target.Target
    """
    if PACKAGE in sys.modules and not isinstance(sys.modules[PACKAGE], _Intrinsics):
        return
    own = _own(target)
    if own is None:
        sys.modules.pop(PACKAGE, None)
        importlib.import_module(PACKAGE)
        return
    if PACKAGE not in sys.modules:
        import tvm.s_tir

        package = _Intrinsics(PACKAGE)
        package.__path__ = [f"{folder}/tensor_intrin" for folder in tvm.s_tir.__path__]
        sys.modules[PACKAGE] = package
        tvm.s_tir.tensor_intrin = package
    importlib.import_module(f"{PACKAGE}.{own}")


def _own(target: Any) -> str | None:
    """The module of a processor's intrinsics; None where that is not known."""
    if not is_cpu(target):
        return None
    keys = {str(key) for key in target.keys}
    if "arm_cpu" in keys or "aarch64" in str(target.attrs.get("mtriple", "")):
        return "arm_cpu"
    if "cpu" not in keys or "riscv" in str(target.attrs.get("mtriple", "")):
        return None
    return "x86"
