"""Builds and times MetaSchedule candidates for the collector: seconds, or what TVM writes for none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from data_builder.measure import MeasureOptions, pin
from wmsched.errors import EnvironmentProblem
from wmsched.resolve import is_cpu
from wmsched.types import MAX_SECONDS

FAILED = [1e10]  # what TVM writes for a candidate without a time


class MetaMeasurer:
    """Measures batches of candidates of one program after the other.

    Parameters
    ----------
    options : MeasureOptions
        As for AutoScheduler.
    target : tvm.target.Target
    builder, runner : optional
        In place of TVM's local ones.

    Raises
    ------
    EnvironmentProblem
        The cores do not exist.
    """

    def __init__(
        self, options: MeasureOptions, target: Any, *, builder: Any = None, runner: Any = None
    ) -> None:
        from wmsched.backends.meta_measure import Measurer

        if options.cores:
            pin(options.cores)
        self.target = target
        self._measurer = Measurer(
            target,
            timeout=options.build_timeout,
            run_timeout=options.run_timeout,
            min_repeat_ms=options.min_repeat_ms,
            repeat=options.repeat,
            cache_flush=options.cache_flush,
            builders=options.builders,
            builder=builder,
            runner=runner,
        )
        self._good: Any = None  # the last candidate that was measured

    @property
    def problems(self) -> dict[str, int]:
        """Failures by what failed."""
        return self._measurer.problems

    def measure(self, candidates: Sequence[Any]) -> Iterator[tuple[Any, list[float]]]:
        """Build `candidates` together, then time them one by one.

        Where not one of them can be measured, a program that must work is tried before that is believed: the
        last one that did, or else a sum. Until then nothing is yielded.

        Yields
        ------
        (candidate, seconds)
            As soon as each is known; `FAILED` for one that cannot be built, run or timed.

        Raises
        ------
        EnvironmentProblem
            Nothing can be measured here: no schedule is at fault, so none is reported as failed.
        """
        failed: list[Any] | None = []  # so far all of them; None once one was measured
        with closing(self._measurer.measure(candidates)) as measured:
            for candidate, result in measured:
                times = _seconds(result)
                if times is None:
                    if failed is None:
                        yield candidate, FAILED
                    else:
                        failed.append(candidate)
                    continue
                self._good = candidate
                for lost in failed or ():
                    yield lost, FAILED
                failed = None
                yield candidate, times
        if failed:
            self._believe(len(failed))
            for lost in failed:
                yield lost, FAILED

    def _believe(self, count: int) -> None:
        """Raise EnvironmentProblem if not even what must work does."""
        tried = self._good or _sum(self.target)
        ((_, result),) = self._measurer.measure([tried])
        if _seconds(result) is None:
            reason = str(result.error_msg or "no run times").strip()[-300:]
            raise EnvironmentProblem(
                f"none of {count} schedules could be measured, nor a program that must work: {reason}. What"
                " was measured before is kept. See to the compiler, the device or the disk, and go on then"
            )


def _seconds(result: Any) -> list[float] | None:
    """The run times of a RunnerResult; None where it has none that can be believed."""
    times = [float(t) for t in result.run_secs or ()]
    return times if times and all(math.isfinite(t) and 0 < t < MAX_SECONDS for t in times) else None


def _sum(target: Any) -> Any:
    """A candidate that every machine of the target can build and run: 64 numbers plus one."""
    from tvm import IRModule, te
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms

    a = te.placeholder((64,), name="a")
    function = te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="b")])
    schedule = Schedule(IRModule({"main": function}))
    if not is_cpu(target):
        (loop,) = schedule.get_loops(schedule.get_sblock("b"))
        schedule.bind(loop, "threadIdx.x")
    return ms.MeasureCandidate(schedule, ms.arg_info.ArgInfo.from_prim_func(function))
