"""Tells plain Python what AutoScheduler measures, batch by batch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from wmsched.backends.measurements import measurement_of
from wmsched.toolchain.resolve import autoscheduler_tvm

autoscheduler_tvm()

from tvm import auto_scheduler  # noqa: E402

logger = logging.getLogger("wmsched")


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
