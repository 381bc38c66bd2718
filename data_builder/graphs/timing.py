"""Seconds of a graph's configurations, timed in turns beside today's rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data_builder.graphs.job import REGIONS, Job, Timing
from wmsched.base.cores import unbound
from wmsched.relax.choices.regions import Variant
from wmsched.tune.graph.costs import timed_costs
from wmsched.tune.latency import library_call

__all__ = ["timed", "timing"]

ROUNDS = 15
TURN = 4e-3  # seconds of calls of one configuration in a round, at least
LEAST_CALLS = 3  # of which the first finds other configurations' data in the caches, and does not count
BESIDE = 8  # configurations that are timed between two timings of the rules


def timed(job: Job, target: Any, *, rounds: int = ROUNDS) -> Timing:
    """Time a graph that is built."""
    plan, inputs = job.plan(), [torch.from_numpy(data).clone() for data in job.inputs()]
    calls = [library_call(job.exported(number), target, inputs) for number in range(len(plan.chosen))]
    with unbound():
        for call in calls:
            call()
        seconds = timing(calls, rounds)
    each = [Variant(key, choices, name) for name, key, choices, _ in plan.variants]
    costs: dict[str, dict[tuple[int, ...], float]] = {}
    if each:
        shapes = {name: [tuple(shape) for shape in read] for name, _, _, read in plan.variants}
        costs = timed_costs(job.folder / REGIONS, target, shapes, each)
    return Timing(seconds, np.array([costs[one.region][one.choices] for one in each]))


def timing(calls: Sequence[Callable[[], Any]], rounds: int, *, seed: int = 0) -> NDArray[np.float64]:
    """Return the seconds of each call, of which the first is what the others are compared with.

    In each round all are timed in another order, the first one before every few others. A call's seconds are
    the median over the rounds of its seconds over the first one's beside it, times the first one's median.
    """
    draw = np.random.default_rng(seed)
    ratios = np.ones((rounds, len(calls)))
    first = []
    for number in range(rounds):
        order = 1 + draw.permutation(len(calls) - 1)
        before = _turn(calls[0])
        for start in range(0, len(order), BESIDE):
            group = order[start : start + BESIDE]
            found = [_turn(calls[k]) for k in group]
            after = _turn(calls[0])
            ratios[number, group] = np.array(found) / ((before + after) / 2)
            first.append(before)
            before = after
        first.append(before)
    return np.median(ratios, axis=0) * float(np.median(first))


def _turn(call: Callable[[], Any]) -> float:
    """Return the median seconds of a few calls in a row."""
    found: list[float] = []
    while len(found) < LEAST_CALLS or sum(found) < TURN:
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return float(np.median(found[1:]))
