"""Asks, where not one schedule of a batch can be measured, whether anything can be here at all."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any

from tvm import IRModule, te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from wmsched.backends.meta_measure import Measurer
from wmsched.backends.meta_runner import times_of
from wmsched.errors import EnvironmentProblem
from wmsched.resolve import is_cpu

MANY = 4  # failures at the end of a batch: a disk that is full, or a device that is gone, looks so


class Believed:
    """A measurer whose failures are the schedules' own.

    Parameters
    ----------
    measurer : Measurer
    stop : callable, optional
        Whether it is enough: asked after each failure; those since the last that ran are not believed then.
    """

    def __init__(self, measurer: Measurer, stop: Callable[[], bool] = lambda: False) -> None:
        self._measurer = measurer
        self._stop = stop
        self._good: Any = None  # the last candidate that was measured

    @property
    def problems(self) -> dict[str, int]:
        """Failures by what failed."""
        return self._measurer.problems

    def measure(self, candidates: Sequence[Any]) -> Generator[tuple[Any, Any], None, None]:
        """Build `candidates` together, then time them one by one.

        Where not one of them can be measured, or none of the last `MANY`, a program that must work is tried
        before that is believed: the last one that did, or else a sum. Until then those are not yielded.

        Yields
        ------
        (candidate, RunnerResult)
            As soon as each is known; without believable run times for one that cannot be built, run or timed.

        Raises
        ------
        EnvironmentProblem
            Nothing can be measured here: no schedule is at fault, so none is reported as failed.
        """
        failed: list[tuple[Any, Any]] = []  # since the last one that was measured
        any_ran = False
        with closing(self._measurer.measure(candidates)) as measured:
            for candidate, result in measured:
                if times_of(result) is None:
                    failed.append((candidate, result))
                    if self._stop():
                        break
                    continue
                self._good = candidate
                yield from failed
                failed, any_ran = [], True
                yield candidate, result
            else:
                if failed and (len(failed) >= MANY or not any_ran):
                    self._believe(("the last " if any_ran else "") + str(len(failed)))
                yield from failed

    def _believe(self, which: str) -> None:
        """Raise EnvironmentProblem if not even what must work does."""
        tried = self._good or _sum(self._measurer.target)
        ((_, result),) = self._measurer.measure([tried])
        if times_of(result) is None:
            reason = str(result.error_msg or "no run times").strip()[-300:]
            raise EnvironmentProblem(
                f"none of {which} schedules could be measured, nor a program that must work: {reason}. What"
                " was measured before is kept. See to the compiler, the device or the disk, and go on then"
            )


def _sum(target: Any) -> Any:
    """A candidate that every machine of the target can build and run: 64 numbers plus one."""
    a = te.placeholder((64,), name="a")
    function = te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="b")])
    schedule = Schedule(IRModule({"main": function}))
    if not is_cpu(target):
        (loop,) = schedule.get_loops(schedule.get_sblock("b"))
        schedule.bind(loop, "threadIdx.x")
    return ms.MeasureCandidate(schedule, ms.arg_info.ArgInfo.from_prim_func(function))
