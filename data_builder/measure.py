"""Builds and times schedules on this machine. Needs AutoScheduler's TVM.

Builds and runs happen in TVM's own child processes with time limits, so a schedule that crashes or hangs
costs its
limit and becomes a record with an error number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wmsched.resolve import autoscheduler_tvm, usable_cores

UNKNOWN_ERROR = 8
FAILED_COST = 1e10  # TVM's mark of "no time"


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How a schedule is timed.

    Attributes
    ----------
    min_repeat_ms : int
        A timing repeats the program for at least so long, with caches flushed before.
    repeat : int
        Timings of each schedule.
    build_timeout, run_timeout : int
        Seconds.
    builders : int
        Builds at a time; 0 for one a core.
    """

    min_repeat_ms: int = 60
    repeat: int = 1
    build_timeout: int = 15
    run_timeout: int = 10
    builders: int = 0


class Measurer:
    """Measures batches of schedules of one task after the other."""

    def __init__(self, options: MeasureOptions) -> None:
        ansor = autoscheduler_tvm().auto_scheduler
        self._ansor = ansor
        self._builder = ansor.LocalBuilder(
            timeout=options.build_timeout, n_parallel=options.builders or usable_cores()
        )
        self._runner = ansor.LocalRunner(
            timeout=options.run_timeout,
            repeat=options.repeat,
            min_repeat_ms=options.min_repeat_ms,
            cooldown_interval=0.0,
            enable_cpu_cache_flush=True,
        )

    def measure(self, task: Any, states: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Build `states` together, then time them one by one.

        Parameters
        ----------
        task : tvm.auto_scheduler.SearchTask
        states : sequence of State

        Yields
        ------
        (MeasureInput, MeasureResult)
            As soon as each is known; a schedule that fails has an error number.
        """
        inputs = [self._ansor.MeasureInput(task, state) for state in states]
        try:
            built = list(self._builder.build(inputs, verbose=0))
        except (
            Exception
        ) as error:  # TVM's builder itself failed, not a schedule; its errors have no common base
            yield from ((entry, self._failed(error)) for entry in inputs)
            return
        for entry, build in zip(inputs, built, strict=True):
            try:
                result = self._runner.run([entry], [build], verbose=0)[0]
            except Exception as error:
                result = self._failed(error)
            yield entry, result

    def _failed(self, error: Exception) -> Any:
        text = f"{type(error).__name__}: {error}"
        return self._ansor.measure.MeasureResult([FAILED_COST], UNKNOWN_ERROR, text[-500:], 0.0, time.time())
