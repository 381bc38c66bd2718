"""How well the best possible model could rank, when each program was timed once and timings differ.

A measured time is t = tau * exp(e) with e normal of deviation sigma. An oracle that knows every tau picks the
program of the smallest tau, and is scored by t, as any model is: that is the ceiling. With a flat prior on
log tau, log tau given t is normal around log t with the same sigma, so the ceiling is a mean over draws.

sigma comes from programs that were timed more than once. Where there are none, programs with equal action
features stand in: they differ in what phi does not see, too, so theirs is an upper bound of sigma and gives a
lower bound of the ceiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.inputs import TaskInputs
from wmsched.learn.evaluate.quality import Estimate, estimate, workload_quality

LEAST_PAIRS = 20  # fewer say nothing of a deviation
DRAWS = 20
NORMAL_MEDIAN = 0.6745  # median of |x| of a standard normal


@dataclass(frozen=True)
class Noise:
    """The deviation of log seconds, and where it is from.

    Attributes
    ----------
    sigma : NaN where it could not be estimated
    pairs : how many pairs of timings it is from
    source : "repeats", "equal features" (an upper bound) or "given"
    """

    sigma: float
    pairs: int
    source: str


def repeats(dataset: Dataset) -> NDArray[np.float64]:
    """log t1/t2 of timings of the same steps of the same workload, each with the one before it."""
    found = []
    for _, trajectories in dataset.iter_trajectories():
        before: dict[str, float] = {}
        for trajectory in trajectories:
            seconds, name = trajectory.measurement.seconds, repr(trajectory.steps)
            if not np.isfinite(seconds):
                continue
            if name in before:
                found.append(np.log(seconds / before[name]))
            before[name] = seconds
    return np.array(found, np.float64)


def equal_features(tasks: Sequence[TaskInputs]) -> NDArray[np.float64]:
    """log t1/t2 of neighbours among the programs of a workload that phi cannot tell apart."""
    found = []
    for task in tasks:
        last: dict[bytes, float] = {}
        for row, seconds in zip(task.phi, task.seconds):
            if not np.isfinite(seconds):
                continue
            name = row.tobytes()
            if name in last:
                found.append(np.log(seconds / last[name]))
            last[name] = float(seconds)
    return np.array(found, np.float64)


def deviation(log_ratios: NDArray[np.float64]) -> float:
    """sigma of one timing from log ratios of two, by their median: a few disturbed ones move it little."""
    if not len(log_ratios):
        return float("nan")
    return float(np.median(np.abs(log_ratios)) / NORMAL_MEDIAN / np.sqrt(2))


def estimate_noise(dataset: Dataset, tasks: Sequence[TaskInputs]) -> Noise:
    """sigma from repeated timings, else from programs with equal features."""
    again = repeats(dataset)
    if len(again) >= LEAST_PAIRS:
        return Noise(deviation(again), len(again), "repeats")
    alike = equal_features(tasks)
    if len(alike) >= LEAST_PAIRS:
        return Noise(deviation(alike), len(alike), "equal features")
    return Noise(float("nan"), 0, "none")


def oracle(tasks: Sequence[TaskInputs], sigma: float, *, seed: int = 0) -> list[dict[str, float]]:
    """Each workload's metrics of one that knows the times without their noise, means over `DRAWS` draws."""
    rng = np.random.default_rng(seed)
    lines = []
    for task in tasks:
        t = np.where(np.isfinite(task.seconds), task.seconds, np.nan)
        draws = []
        for _ in range(DRAWS):
            true = t * np.exp(sigma * rng.standard_normal(len(t)))
            draws.append(workload_quality(np.where(np.isnan(true), -np.inf, -true), task.seconds))
        lines.append({name: float(np.mean([d[name] for d in draws])) for name in draws[0]})
    return lines


def ceiling(tasks: Sequence[TaskInputs], sigma: float, *, seed: int = 0) -> dict[str, Estimate]:
    """Metrics of `oracle` as means over workloads."""
    lines = oracle(tasks, sigma, seed=seed)
    return {name: estimate(np.array([line[name] for line in lines])) for name in lines[0]}
