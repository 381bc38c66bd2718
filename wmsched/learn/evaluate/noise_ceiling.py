"""Noise ceiling: how well the best possible model could rank programs that were timed once each.

A measured time is t = tau * exp(e) with e normal of standard deviation sigma. An oracle that knows every tau
picks the smallest and is scored by t, like a model. With a flat prior on log tau, log tau given t is normal
around log t with the same sigma, so the ceiling is a mean over draws.

sigma comes from programs timed more than once. Without those, programs with equal action features are used;
they also differ in what phi does not see, which gives an upper bound of sigma and a lower bound of the
ceiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.inputs import TaskInputs
from wmsched.learn.evaluate.quality import Estimate, estimate, workload_quality

MIN_PAIRS = 20  # for an estimate of sigma
DRAWS = 20
NORMAL_MEDIAN = 0.6745  # median of |x| of a standard normal


@dataclass(frozen=True)
class Noise:
    """Standard deviation of log seconds, and its source.

    Attributes
    ----------
    sigma : NaN if it could not be estimated
    pairs : number of pairs of timings behind it
    source : "repeats", "equal features" (an upper bound) or "given"
    """

    sigma: float
    pairs: int
    source: str


def repeats(dataset: Dataset) -> NDArray[np.float64]:
    """Return log t1/t2 of consecutive timings of the same steps of the same workload."""
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
    """Return log t1/t2 of neighbouring programs of a workload with equal phi."""
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
    """Return sigma of one timing from log ratios of two; the median resists a few disturbed ones."""
    if not len(log_ratios):
        return float("nan")
    return float(np.median(np.abs(log_ratios)) / NORMAL_MEDIAN / np.sqrt(2))


def estimate_noise(dataset: Dataset, tasks: Sequence[TaskInputs]) -> Noise:
    """Estimate sigma from repeated timings, else from programs with equal features."""
    again = repeats(dataset)
    if len(again) >= MIN_PAIRS:
        return Noise(deviation(again), len(again), "repeats")
    alike = equal_features(tasks)
    if len(alike) >= MIN_PAIRS:
        return Noise(deviation(alike), len(alike), "equal features")
    return Noise(float("nan"), 0, "none")


def oracle(tasks: Sequence[TaskInputs], sigma: float, *, seed: int = 0) -> list[dict[str, float]]:
    """Return each workload's metrics of an oracle without noise, means over `DRAWS` draws."""
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
    """Return the metrics of `oracle` as means over workloads."""
    lines = oracle(tasks, sigma, seed=seed)
    return {name: estimate(np.array([line[name] for line in lines])) for name in lines[0]}
