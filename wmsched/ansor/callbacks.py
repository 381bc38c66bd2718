"""What AutoScheduler's measure callbacks do, done from Python.

TVM calls them from C++ alone, for what its own policies measure. Those that write a log and those of Python's
are known from the time when they are made; others cannot be called.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tvm import auto_scheduler
from tvm.auto_scheduler import measure, measure_record

from wmsched.base.errors import LogError
from wmsched.schedules.log_file import GrowingLog
from wmsched.schedules.types import Measurement

logger = logging.getLogger("wmsched")

Call = Callable[[Any, Sequence[Any], Sequence[Any]], None]
"""(policy, inputs, results)"""

_logs: dict[int, str] = {}  # by the address of TVM's object, which a wrapper made later has too
_python: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def watch() -> None:
    """Remember callbacks as they are made, from now on."""
    record, python = measure_record.RecordToFile, measure.PythonBasedMeasureCallback
    if getattr(record.__init__, "watched", False):
        return
    make_record, make_python = record.__init__, python.__init__

    @functools.wraps(make_record)
    def init_record(self: Any, filename: Any, *more: Any) -> None:
        make_record(self, filename, *more)
        _logs[self.handle.value] = str(filename)

    @functools.wraps(make_python)
    def init_python(self: Any, *more: Any) -> None:
        make_python(self, *more)
        _python[self.handle.value] = self  # TVM's object holds this one: it lives as long

    init_record.watched = True  # type: ignore[attr-defined]
    record.__init__, python.__init__ = init_record, init_python


def calls(callbacks: Sequence[Any]) -> list[Call] | None:
    """What TVM would call after each batch, in order; None if one of them is not known."""
    found: list[Call] = []
    for callback in callbacks:
        address = callback.handle.value
        if isinstance(callback, measure_record.RecordToFile) and address in _logs:
            found.append(_Record(_logs[address]))
        elif isinstance(callback, measure.PythonBasedMeasureCallback) and address in _python:
            found.append(_python[address].callback)
        else:
            return None
    return found


def logs_of(callbacks: Sequence[Any]) -> list[str]:
    """The names of the logs that callbacks write, as far as they are known."""
    found = [_logs.get(callback.handle.value) for callback in callbacks]
    return [name for name in found if name]


class _Record:
    """Writes records as TVM does, which does not say when it cannot."""

    def __init__(self, path: str) -> None:
        self.path, self.written, self.told = path, 0, False
        self.log: GrowingLog | None = None

    def __call__(self, _policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        if self.log is None:
            self.log = GrowingLog(Path(self.path))
        auto_scheduler.save_records(self.path, inputs, results)
        self.written += len(inputs)
        try:
            self.log.check(self.written)
        except LogError as error:  # the search goes on: what is found is known to it
            if not self.told:
                logger.warning("wmsched: %s", error)
            self.told = True


# Tells plain Python what AutoScheduler measures, batch by batch.


class MeasureProgress(auto_scheduler.measure.PythonBasedMeasureCallback):
    """Calls ``measured(workload_key, seconds)`` after each batch; failed candidates are NaN seconds.

    What `measured` raises is logged and does not end the tuning.

    Attributes
    ----------
    trials, failed : int
        Of this run so far.
    reason : str
        What TVM said of the first failure.
    """

    def __init__(self, measured: Callable[[str, list[float]], None]) -> None:
        super().__init__()
        self.measured = measured
        self.trials = self.failed = 0
        self.reason = ""

    def callback(self, policy: Any, inputs: Any, results: Any) -> None:
        """TVM's hook: `inputs` and `results` of one batch, which belong to one task."""
        try:
            if len(inputs):
                seconds = [self._seconds(result) for result in results]
                self.measured(str(inputs[0].task.workload_key), seconds)
        except Exception:
            logger.exception("wmsched: the progress display failed; tuning goes on")

    def _seconds(self, result: Any) -> float:
        self.trials += 1
        found = measurement_of(result)
        if not found.ok:
            self.failed += 1
            self.reason = self.reason or str(result.error_msg or "").strip() or found.kind
        return found.seconds


# What AutoScheduler's measurer found, as wmsched's `Measurement`.


def measurement_of(result: Any) -> Measurement:
    """A `tvm.auto_scheduler.MeasureResult`'s numbers."""
    costs = tuple(float(cost) for cost in result.costs)
    return Measurement(costs, int(result.error_no), float(result.all_cost), float(result.timestamp))
