"""Weighted model latency: the sum over a model's tasks of occurrences x best latency (paper, Eq 13).

Two models may share a task (the same workload): a task that was not tuned under its own name takes the other
model's measurement.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from benchmarks.outcomes.outcomes import Outcome, Outcomes, Setting
from benchmarks.outcomes.ratios import best_at
from wmsched import zoo


@functools.cache
def tasks_of() -> dict[str, list[tuple[int, tuple[str, ...]]]]:
    """Of each model, (weight, names) a task; the first name is its own, the others are its twins'."""
    rows = zoo.rows()
    same: dict[str, list[str]] = {}
    for row in rows:
        same.setdefault(row["workload_key"], []).append(row["name"])
    found: dict[str, list[tuple[int, tuple[str, ...]]]] = {model: [] for model in zoo.models()}
    for row in rows:
        twins = (name for name in same[row["workload_key"]] if name != row["name"])
        found[row["model"]].append((row["weight"], (row["name"], *twins)))
    return found


def cell(data: Outcomes, names: tuple[str, ...], method: str, setting: Setting) -> dict[int, Outcome]:
    """The outcomes by seed under the first of a task's names that has any."""
    return next((found for name in names if (found := data.of(name, method, setting))), {})


def tuned(data: Outcomes, model: str, method: str, setting: Setting) -> tuple[int, int]:
    """(tasks of the model with a result, tasks it has)."""
    tasks = tasks_of()[model]
    return sum(bool(cell(data, names, method, setting)) for _, names in tasks), len(tasks)


def sums(
    data: Outcomes,
    model: str,
    method: str,
    setting: Setting,
    *,
    value: Callable[[Outcome], float] = lambda outcome: outcome.seconds,
) -> dict[int, float]:
    """The weighted seconds of a model by seed, for the seeds that all of its tasks have; {} if none."""
    cells = [(weight, cell(data, names, method, setting)) for weight, names in tasks_of()[model]]
    seeds = set.intersection(*(set(one) for _, one in cells))
    return {seed: sum(weight * value(one[seed]) for weight, one in cells) for seed in sorted(seeds)}


def ratios(
    data: Outcomes, baseline: str, baseline_setting: Setting, ours: str, ours_setting: Setting
) -> dict[str, list[float]]:
    """Baseline / ours of the weighted latency of each complete model, one a shared seed."""
    found: dict[str, list[float]] = {}
    for model in tasks_of():
        theirs = sums(data, model, baseline, baseline_setting)
        mine = sums(data, model, ours, ours_setting)
        if shared := _shared(theirs, mine):
            found[model] = shared
    return found


def _shared(theirs: dict[int, float], mine: dict[int, float]) -> list[float]:
    """Theirs / mine of each seed that both have."""
    return [theirs[seed] / mine[seed] for seed in sorted(theirs.keys() & mine.keys())]


def ratios_at(
    data: Outcomes, baseline: str, ours: str, setting: Setting, seconds: float
) -> dict[str, list[float]]:
    """The same if each task's search is stopped after so many seconds, from first measurements.

    A model with a task that has no measurement by then is left out.
    """

    def then(outcome: Outcome) -> float:
        return best_at(outcome.line["curve"], seconds)

    found: dict[str, list[float]] = {}
    for model in tasks_of():
        try:
            theirs = sums(data, model, baseline, setting, value=then)
            mine = sums(data, model, ours, setting, value=then)
        except ValueError:
            continue
        if shared := _shared(theirs, mine):
            found[model] = shared
    return found
