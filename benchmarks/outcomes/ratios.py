"""Speedups over several tasks and seeds: geometric means, bootstrap intervals, and ratios at equal time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from benchmarks.outcomes.outcomes import Outcomes, Setting

RESAMPLES = 4000
FEW = 10
GRID = (10, 20, 30, 60, 120, 200, 300, 500, 1000, 3000, 10000)

Ratios = Mapping[str, Sequence[float]]
"""Of each task, one speedup a seed."""
Point = Sequence[float]
"""(trials, seconds since the start, best latency in seconds)."""
Curves = list[tuple[str, list[Point], list[Point]]]
"""Of each task and seed: (task, our points, the baseline's points)."""


def geometric_mean(values: Iterable[float]) -> float:
    """exp(mean(log(values)))."""
    return math.exp(float(np.mean([math.log(value) for value in values])))


def by_task(ratios: Ratios) -> list[float]:
    """One speedup a task: the geometric mean over its seeds."""
    return [geometric_mean(values) for values in ratios.values()]


def bootstrap(ratios: Ratios, *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """The interval of the geometric mean over tasks if tasks, and the seeds in them, are drawn again."""
    rng = np.random.default_rng(seed)
    logs = [np.log(np.asarray(values, dtype=np.float64)) for values in ratios.values()]
    # for each task the mean of as many seeds as it has, drawn again; then tasks are drawn among those
    means = np.stack(
        [log[rng.integers(0, log.size, (RESAMPLES, log.size))].mean(axis=1) for log in logs], axis=1
    )
    drawn = rng.integers(0, len(logs), (RESAMPLES, len(logs)))
    totals = np.take_along_axis(means, drawn, axis=1).mean(axis=1)
    low, high = np.quantile(totals, [(1 - level) / 2, (1 + level) / 2])
    return float(np.exp(low)), float(np.exp(high))


def confidence(ratios: Ratios, *, level: float = 0.95) -> tuple[float, float]:
    """The interval of the geometric mean over tasks.

    Of `FEW` tasks or more by `bootstrap`. Of fewer, whose spread drawing them again makes too small, by
    Student's t of the logarithms of each task's mean.
    """
    means = [math.log(value) for value in by_task(ratios)]
    if len(means) >= FEW or len(means) == 1:
        return bootstrap(ratios, level=level)
    half = (
        float(stats.t.ppf((1 + level) / 2, len(means) - 1)) * statistics.stdev(means) / math.sqrt(len(means))
    )
    middle = statistics.fmean(means)
    return math.exp(middle - half), math.exp(middle + half)


def paired_curves(data: Outcomes, ours: str, baseline: str, setting: Setting) -> Curves:
    """The curves of both methods of each task and seed that both have, measured alike."""
    return [
        (task, mine.line["curve"], theirs.line["curve"])
        for task, mine, theirs in data.both(ours, setting, baseline, setting)
        if mine.kept_workers == theirs.kept_workers
    ]


def time_grid(curves: Curves) -> list[float]:
    """Times of `GRID` from which on both methods have a schedule of every task, to the longest run's end."""
    if not curves:
        return []
    start = max(points[0][1] for _, *both in curves for points in both)
    end = max(points[-1][1] for _, *both in curves for points in both)
    return [float(seconds) for seconds in GRID if start <= seconds <= end]


def best_at(points: Sequence[Point], place: float, *, axis: int = 1) -> float:
    """The best latency known after `place` seconds, or trials if `axis` is 0.

    Raises
    ------
    ValueError
        Nothing had been measured by then.
    """
    known = [point[2] for point in points if point[axis] <= place]
    if not known:
        unit = ("trials", "s")[axis]
        raise ValueError(
            f"nothing was measured in the first {place} {unit}: the first point is at {points[0][axis]}"
        )
    return min(known)


def ratios_at(
    curves: Curves, place: float, *, baseline_place: float | None = None, axis: int = 1
) -> dict[str, list[float]]:
    """The speedups of each task after so many seconds, or trials if `axis` is 0.

    A run that has ended keeps its best. The baseline may have had more of them, or fewer.
    """
    theirs_at = place if baseline_place is None else baseline_place
    found: dict[str, list[float]] = {}
    for task, mine, theirs in curves:
        ratio = best_at(theirs, theirs_at, axis=axis) / best_at(mine, place, axis=axis)
        found.setdefault(task, []).append(ratio)
    return found
