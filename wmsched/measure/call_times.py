"""Clock of each call that a Relax virtual machine makes (`call_times.cc`), for its ``set_instrument``.

Without a compiler Python's clock is taken, which adds microseconds to each call; `cost` says how many.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BY_CALLS", "Call", "Clock", "by_calls", "clock"]

#: ``main`` in the machine's own instructions, which has instruments, of a library whose ``main`` is compiled.
BY_CALLS = "main_by_calls"

SYMBOL = "wmsched_call_times"
OPTIONS = ("-std=c++17", "-fvisibility=hidden")
CAPACITY = 1 << 16  # calls for which room is made before a run; more take a pause
GO_ON = 0  # of relax.VMInstrumentReturnKind

logger = logging.getLogger("wmsched")


def by_calls(machine: Any) -> Callable[..., Any]:
    """Return the function of a `tvm.relax.VirtualMachine` that runs the model and has instruments."""
    try:
        return machine[BY_CALLS]
    except AttributeError:  # a library of an earlier version, or for a GPU
        return machine["main"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Parameters
    ----------
    name : str
        The function's, as the library has it.
    seconds : float
        From its start to its end, without what calls in it took and what the clock adds.
    again : float
        Of a second call at once with the same arguments, whose data caches then hold; NaN without one.
    """

    name: str
    seconds: float
    again: float = math.nan


class Clock:
    """Notes calls in Python; `_Compiled` is the quick one.

    Parameters
    ----------
    sync : callable (), optional
        Waits for a GPU, before and after each call.
    """

    def __init__(self, sync: Callable[[], None] | None = None) -> None:
        self.sync = sync or _nothing
        self._calls: list[list[Any]] = []  # name, start, stop, place of the caller
        self._open: list[int] = []
        self.instrument: Any = self._called
        self.cost = self._least()

    def begin(self, *, again: bool = False) -> None:
        """Forget what was noted. `again` asks for second calls, which Python's clock does not make."""
        self._calls, self._open = [], []

    def calls(self) -> list[Call]:
        """What was noted since, in the order of the calls' starts."""
        inner = [0.0] * len(self._calls)
        for _, start, stop, parent in self._calls:
            if parent >= 0:
                inner[parent] += stop - start
        return [
            Call(name, max(0.0, stop - start - inner[k] - self.cost))
            for k, (name, start, stop, _) in enumerate(self._calls)
        ]

    def _called(self, _function: Any, name: Any, before: bool, _result: Any, *_arguments: Any) -> int:
        self.sync()
        if before:
            self._calls.append([str(name), 0.0, 0.0, self._open[-1] if self._open else -1])
            self._open.append(len(self._calls) - 1)
            self._calls[-1][1] = time.perf_counter()
        else:
            stop = time.perf_counter()
            self._calls[self._open.pop()][2] = stop
        return GO_ON

    def _least(self) -> float:
        """Seconds that it adds to a call: the least of some, of a call of nothing by TVM's FFI."""
        import tvm_ffi

        called = tvm_ffi.convert_func(self._called) if hasattr(tvm_ffi, "convert_func") else self._called
        for _ in range(64):
            called(None, "cost", True, None)
            called(None, "cost", False, None)
        least = min(stop - start for _, start, stop, _ in self._calls)
        self.begin()
        return least


class _Event(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("again", ctypes.c_int64),
        ("name", ctypes.c_int32),
        ("parent", ctypes.c_int32),
    )


class _Compiled(Clock):
    """Notes calls in C++; one at a time in a process."""

    def __init__(self, path: str) -> None:
        import tvm

        self._library = ctypes.CDLL(path)
        self._library.wmsched_calls_begin.argtypes = (ctypes.c_int64, ctypes.c_int32)
        self._library.wmsched_calls_begin.restype = None
        self._library.wmsched_calls_count.restype = ctypes.c_int64
        self._library.wmsched_calls_events.restype = ctypes.POINTER(_Event)
        self._library.wmsched_calls_name.restype = ctypes.c_char_p
        self._library.wmsched_calls_cost.restype = ctypes.c_int64
        self._module = tvm.runtime.load_module(path)
        self.instrument = self._module[SYMBOL]
        self.cost = self._library.wmsched_calls_cost() * 1e-9

    def begin(self, *, again: bool = False) -> None:
        """Forget what was noted; whether compiled functions are called a second time each."""
        self._library.wmsched_calls_begin(CAPACITY, again)

    def calls(self) -> list[Call]:
        """As `Clock.calls`."""
        count = self._library.wmsched_calls_count()
        found = self._library.wmsched_calls_events()[:count]
        names = [
            self._library.wmsched_calls_name(k).decode(errors="replace")
            for k in range(self._library.wmsched_calls_names())
        ]
        inner = [0] * count
        for event in found:
            if event.parent >= 0:
                inner[event.parent] += event.stop - event.start
        return [
            Call(
                names[event.name],
                max(0.0, (event.stop - event.start - inner[k]) * 1e-9 - self.cost),
                event.again * 1e-9 if event.again >= 0 else math.nan,
            )
            for k, event in enumerate(found)
        ]


def clock(sync: Callable[[], None] | None = None) -> Clock:
    """The quick clock; Python's where that cannot be compiled, or where a device is waited for."""
    path = "" if sync is not None else _compiled()
    return _Compiled(path) if path else Clock(sync)


@functools.cache
def _compiled() -> str:
    from tvm.support import cc

    from wmsched.toolchain.compile_cache import compiled

    try:
        source = Path(__file__).resolve().with_name("call_times.cc")
        path = compiled("call_times", source, OPTIONS, compiler=cc.get_cc())
        ctypes.CDLL(str(path))
        return str(path)
    except Exception as error:
        logger.warning(
            "wmsched: calls are clocked in Python, microseconds each: the clock cannot be compiled (%s: %s)",
            type(error).__name__,
            str(error)[-300:],
        )
        return ""


def _nothing() -> None:
    return None
