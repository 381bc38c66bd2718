"""AutoScheduler's measure callbacks, called from Python.

TVM calls them from C++ only, after its own policies measure. `watch` records the log writers and the Python
callbacks when a script makes them. Python cannot call any other kind.
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
"""A measure callback: (policy, inputs, results)."""

_logs: dict[int, str] = {}  # by the address of TVM's object, which a wrapper made later has too
_python: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def watch() -> None:
    """Record every callback that this process makes from now on; idempotent."""
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
    """Return the functions that TVM would call after each batch, in order; None if one is unknown."""
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
    """Return the names of the logs that known callbacks write."""
    found = [_logs.get(callback.handle.value) for callback in callbacks]
    return [name for name in found if name]


class _Record:
    """Log writer like TVM's, with a check that the records reached the file; TVM's own fails silently."""

    def __init__(self, path: str) -> None:
        self.path, self.written, self.warned = path, 0, False
        self.log: GrowingLog | None = None

    def __call__(self, _policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        if self.log is None:
            self.log = GrowingLog(Path(self.path))
        auto_scheduler.save_records(self.path, inputs, results)
        self.written += len(inputs)
        try:
            self.log.check(self.written)
        except LogError as error:  # the search continues: it keeps its results in memory
            if not self.warned:
                logger.warning("wmsched: %s", error)
            self.warned = True


class MeasureProgress(auto_scheduler.measure.PythonBasedMeasureCallback):
    """Callback that calls ``measured(workload_key, seconds)`` after each batch; a failure is NaN seconds.

    An error that `measured` raises is logged and does not end the tuning.

    Attributes
    ----------
    trials, failed : int
        Counts of this run so far.
    reason : str
        TVM's message of the first failure.
    """

    def __init__(self, measured: Callable[[str, list[float]], None]) -> None:
        super().__init__()
        self.measured = measured
        self.trials = self.failed = 0
        self.reason = ""

    def callback(self, policy: Any, inputs: Any, results: Any) -> None:
        """Report one batch; TVM calls this with `inputs` and `results` of a single task."""
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


def measurement_of(result: Any) -> Measurement:
    """Return the numbers of a `tvm.auto_scheduler.MeasureResult`, in seconds."""
    costs = tuple(float(cost) for cost in result.costs)
    return Measurement(costs, int(result.error_no), float(result.all_cost), float(result.timestamp))
