"""Tensor intrinsics of one target, instead of all of TVM's.

Works around apache-tvm 0.27; remove when importing `tvm.s_tir.tensor_intrin` is fast. MetaSchedule imports
that package, with the intrinsics of all targets, before its first task. TVM's parser looks up the source of
every stack frame for each of their functions. This takes over a minute with many loaded modules.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

from wmsched.metaschedule.rules.quiet_rules import register_quiet_rules
from wmsched.toolchain.resolve import is_cpu

PACKAGE = "tvm.s_tir.tensor_intrin"


class _Intrinsics(ModuleType):
    """The package with the target's module; other modules are imported on first access."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return importlib.import_module(f"{PACKAGE}.{name}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"{PACKAGE} has no {name!r}") from error


def import_intrinsics(target: Any = None) -> None:
    """Register the tensor intrinsics that schedules for `target` may use; the others stay importable.

    x86 takes 0.2 s, the whole package 4 s; a plain import takes 29 to 80 s. Targets other than x86 and ARM
    get the whole package.

    Parameters
    ----------
    target : tvm.target.Target, optional
        By default the whole package, unless this process registered some before.
    """
    register_quiet_rules()
    there = sys.modules.get(PACKAGE)
    if there is not None and (target is None or not isinstance(there, _Intrinsics)):
        return
    own = None if target is None else _module_of(target)
    if own is None:
        sys.modules.pop(PACKAGE, None)
        with _quick_stacks():
            importlib.import_module(PACKAGE)
            if target is not None and target.kind.name == "cuda":
                from wmsched.metaschedule.rules.tensor_cores import register_intrinsics

                register_intrinsics()  # a record that is applied may name them
        return
    if PACKAGE not in sys.modules:
        import tvm.s_tir

        package = _Intrinsics(PACKAGE)
        package.__path__ = [f"{folder}/tensor_intrin" for folder in tvm.s_tir.__path__]
        sys.modules[PACKAGE] = package
        tvm.s_tir.tensor_intrin = package
    with _quick_stacks():
        importlib.import_module(f"{PACKAGE}.{own}")


@contextmanager
def _quick_stacks() -> Iterator[None]:
    """Replace `inspect.stack` by one that does not search all loaded modules for a frame without a file.

    The frames of an import are frozen, without a file, and each intrinsic's decorator asks for the stack.
    """
    stack = inspect.stack
    inspect.stack = _stack  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.stack = stack


def _stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Return the caller's stack like `inspect.stack`, with at most one line of source a frame."""
    found = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name, line = frame.f_code.co_filename, frame.f_lineno
        text = linecache.getline(name, line, frame.f_globals) if context else ""
        code = ([text], 0) if text else (None, None)
        found.append(inspect.FrameInfo(frame, name, line, frame.f_code.co_name, *code))
        frame = frame.f_back
    return found


def _module_of(target: Any) -> str | None:
    """Return the name of a processor's module of intrinsics; None if unknown."""
    if not is_cpu(target):
        return None
    keys = {str(key) for key in target.keys}
    if "arm_cpu" in keys or "aarch64" in str(target.attrs.get("mtriple", "")):
        return "arm_cpu"
    if "cpu" not in keys or "riscv" in str(target.attrs.get("mtriple", "")):
        return None
    return "x86"
