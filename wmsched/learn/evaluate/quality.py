"""Ranking quality of scores: metrics of each workload, means over workloads, bootstrap intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmsched.learn.evaluate import metrics

METRICS = ("top1", "top5", "pairwise", "tau", "regret16", "regret64")
MIN_MEASURED = 2  # programs of an evaluated workload
RESAMPLES = 2000  # of the bootstrap

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """Mean over workloads with its 95 % interval; NaN if no workload has the number."""

    mean: float
    low: float
    high: float
    workloads: int

    def text(self, digits: int = 3) -> str:
        """Return a text such as "0.757 (0.731 to 0.781)", or "-" for NaN."""
        if not self.workloads:
            return "-"
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"

    def signed(self, mark: str = "") -> str:
        """Return a difference such as "+0.075 (+0.041 to +0.108)", its mean between marks; "-" for NaN."""
        if not self.workloads:
            return "-"
        return f"{mark}{self.mean:+.3f}{mark} ({self.low:+.3f} to {self.high:+.3f})"


def workload_quality(scores: ArrayLike, seconds: ArrayLike) -> dict[str, float]:
    """Return `METRICS` of one workload.

    Regret at k is NaN for k programs or fewer, since there is no choice. It is capped at 10, for a model
    whose every pick failed.
    """
    s, t = np.asarray(scores, np.float64), np.asarray(seconds, np.float64)
    if np.isfinite(t).sum() < MIN_MEASURED:
        return dict.fromkeys(METRICS, float("nan"))
    regret = {
        f"regret{k}": min(10.0, metrics.regret(s, t, k)) if len(t) > k else float("nan") for k in (16, 64)
    }
    return {
        "top1": metrics.top_k_score(s, t, 1),
        "top5": metrics.top_k_score(s, t, 5),
        "pairwise": metrics.pairwise_accuracy(s, t),
        "tau": metrics.kendall_tau(s, t),
        **regret,
    }


def qualities(scores: Sequence[ArrayLike], seconds: Sequence[ArrayLike]) -> dict[str, Array]:
    """Return `METRICS` of each workload: float64 [W]."""
    lines = [workload_quality(s, t) for s, t in zip(scores, seconds, strict=True)]
    return {name: np.array([line[name] for line in lines]) for name in METRICS}


def random_qualities(seconds: Sequence[ArrayLike], *, draws: int = 25, seed: int = 0) -> dict[str, Array]:
    """Return `METRICS` of each workload for random scores, means over the draws."""
    rng = np.random.default_rng(seed)
    found = [qualities([rng.random(np.size(t)) for t in seconds], seconds) for _ in range(draws)]
    return {name: np.mean([line[name] for line in found], axis=0) for name in METRICS}


def estimate(values: Array, *, seed: int = 0) -> Estimate:
    """Return the mean of values [W] over workloads without NaN, and its bootstrap interval."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    rng = np.random.default_rng(seed)
    means = known[rng.integers(len(known), size=(RESAMPLES, len(known)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(known.mean()), float(low), float(high), len(known))


def summary(found: Mapping[str, Array], where: NDArray[np.bool_] | None = None) -> dict[str, Estimate]:
    """Return estimates of each metric over the workloads selected by `where` [W]."""
    return {name: estimate(values if where is None else values[where]) for name, values in found.items()}


def differences(found: Mapping[str, Array], base: Mapping[str, Array]) -> dict[str, Estimate]:
    """Return estimates of `found` minus `base`; paired by workload, so the intervals are narrower."""
    return {name: estimate(found[name] - base[name]) for name in found}


def as_json(value: Any) -> Any:
    """Return a result as JSON values: six digits, an estimate as its fields, NaN and infinities as null."""
    if isinstance(value, Estimate):
        return as_json(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float | np.floating):
        return round(float(value), 6) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


def number(value: float | None) -> float:
    """Return a number of `as_json`, with NaN for null."""
    return float("nan") if value is None else value
