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
from wmsched.measure.sanity import believed
from wmsched.toolchain.resolve import is_cpu


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

        Failures are yielded as `wmsched.measure.sanity.believed` says; what must work is the last candidate that
        did, or else a sum.

        Yields
        ------
        (candidate, RunnerResult)
            As soon as each is known; without believable run times for one that cannot be built, run or timed.

        Raises
        ------
        EnvironmentProblem
            Nothing can be measured here: no schedule is at fault, so none is reported as failed.
        """
        with closing(self._measurer.measure(candidates)) as measured:
            for candidate, result in believed(measured, _ran, self._must_work, stop=self._stop):
                if _ran(result):
                    self._good = candidate
                yield candidate, result

    def _must_work(self) -> str:
        """Measures what must work, the last candidate that did or else a sum; "", or why it could not be."""
        tried = self._good or _sum(self._measurer.target)
        ((_, result),) = self._measurer.measure([tried])
        return "" if _ran(result) else str(result.error_msg or "").strip() or "no run times"


def _ran(result: Any) -> bool:
    return times_of(result) is not None


def _sum(target: Any) -> Any:
    """A candidate that every machine of the target can build and run: 64 numbers plus one."""
    a = te.placeholder((64,), name="a")
    function = te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="b")])
    schedule = Schedule(IRModule({"main": function}))
    if not is_cpu(target):
        (loop,) = schedule.get_loops(schedule.get_sblock("b"))
        schedule.bind(loop, "threadIdx.x")
    return ms.MeasureCandidate(schedule, ms.arg_info.ArgInfo.from_prim_func(function))
