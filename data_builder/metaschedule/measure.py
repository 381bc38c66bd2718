"""Builds and times MetaSchedule candidates for the collector: seconds, or what TVM writes for none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from data_builder.collect.measure import MeasureOptions, pin

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
        from wmsched.metaschedule.measure.measurer import Believed, Measurer

        if options.cores:
            pin(options.cores)
        self._measurer = Believed(
            Measurer(
                target,
                timeout=options.build_timeout,
                run_timeout=options.run_timeout,
                min_repeat_ms=options.min_repeat_ms,
                repeat=options.repeat,
                places=options.places,
                cache_flush=options.cache_flush,
                builder=builder,
                runner=runner,
            )
        )

    @property
    def problems(self) -> dict[str, int]:
        """Failures by what failed."""
        return self._measurer.problems

    def measure(self, candidates: Sequence[Any]) -> Iterator[tuple[Any, list[float]]]:
        """Build `candidates` together, then time them one by one.

        Yields
        ------
        (candidate, seconds)
            As soon as each is known; `FAILED` for one that cannot be built, run or timed.

        Raises
        ------
        EnvironmentProblem
            Nothing can be measured here: no schedule is at fault, so none is reported as failed.
        """
        from wmsched.metaschedule.measure.runner import times_of

        with closing(self._measurer.measure(candidates)) as measured:
            for candidate, result in measured:
                yield candidate, times_of(result) or FAILED
