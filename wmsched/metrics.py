"""How well a model ranks measured programs: top-k score, pairwise accuracy, Kendall's tau, regret.

Everywhere `scores` are the model's (higher means predicted faster) and `seconds` the measured times of the
same programs of one workload. A time that is not a positive finite number is a failed measurement, and
counts as infinitely slow: choosing it gains nothing, and every program that ran is faster. Programs with
equal scores are taken slowest first, so a model that cannot tell them apart gets no credit from the order
of the file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Task = tuple[float, ArrayLike, ArrayLike]
"""(weight, scores, seconds) of one workload in a network; the weight is its number of occurrences."""


def _checked(scores: ArrayLike, seconds: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as float64, failed times as infinity. ValueError for NaN scores or unequal lengths."""
    s = np.asarray(scores, dtype=np.float64)
    t = np.asarray(seconds, dtype=np.float64)
    if s.ndim != 1 or s.shape != t.shape:
        raise ValueError(f"scores {s.shape} and seconds {t.shape} must be one-dimensional and of one length")
    if np.isnan(s).any():
        raise ValueError(f"{int(np.isnan(s).sum())} of {s.size} scores are NaN: such a model ranks nothing")
    return s, np.where(np.isfinite(t) & (t > 0), t, np.inf)


def _best_of_first(scores: ArrayLike, seconds: ArrayLike, k: int) -> tuple[float, float]:
    """(best seconds of all, best seconds among the k ranked first)."""
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    s, t = _checked(scores, seconds)
    if t.size == 0 or not np.isfinite(t).any():
        raise ValueError("no program of this workload has a measured time: leave the workload out")
    first = np.lexsort((-t, -s))[:k]
    return float(t.min()), float(t[first].min())


def top_k_score(scores: ArrayLike, seconds: ArrayLike, k: int) -> float:
    """Best seconds over the best seconds among the k programs ranked first; in [0, 1], 1 is perfect.

    Raises
    ------
    ValueError
        No time was measured, lengths differ, a score is NaN, or k < 1.
    """
    best, chosen = _best_of_first(scores, seconds, k)
    return best / chosen


def network_top_k_score(tasks: Sequence[Task], k: int) -> float:
    """TenSet's score of one network: sum_i w_i best_i / sum_i w_i chosen_i(k), over its workloads."""
    pairs = [(weight, *_best_of_first(scores, seconds, k)) for weight, scores, seconds in tasks]
    return sum(w * best for w, best, _ in pairs) / sum(w * chosen for w, _, chosen in pairs)


def top_k_score_averaged(networks: Sequence[Sequence[Task]], k: int) -> float:
    """The mean of the networks' scores, as TenSet reports it."""
    return float(np.mean([network_top_k_score(tasks, k) for tasks in networks]))


def top_k_score_pooled(networks: Sequence[Sequence[Task]], k: int) -> float:
    """The sums of all networks pooled before dividing, as TLP reports it."""
    return network_top_k_score([task for tasks in networks for task in tasks], k)


def regret(scores: ArrayLike, seconds: ArrayLike, k: int = 1) -> float:
    """How much slower the best of the k programs ranked first is than the best of all: 0.25 is 25 % slower.

    Infinite if all k failed.
    """
    best, chosen = _best_of_first(scores, seconds, k)
    return chosen / best - 1.0


def pairwise_accuracy(scores: ArrayLike, seconds: ArrayLike) -> float:
    """Share of the pairs with different times that the scores order as measured; equal scores count a half.

    NaN if no two times differ.
    """
    s, t = _checked(scores, seconds)
    i, j = np.triu_indices(t.size, k=1)
    differs = t[i] != t[j]  # two failures are equal, whatever the model says of them
    i, j = i[differs], j[differs]
    if i.size == 0:
        return float("nan")
    # comparisons, not differences: infinity minus infinity has no sign
    faster = np.where(t[i] < t[j], 1.0, -1.0)
    preferred = (s[i] > s[j]).astype(np.float64) - (s[i] < s[j])
    return float(np.mean((faster * preferred + 1.0) / 2.0))


def kendall_tau(scores: ArrayLike, seconds: ArrayLike) -> float:
    """Kendall's tau-b between score and speed; in [-1, 1]. NaN if all scores or all times are equal."""
    from scipy.stats import kendalltau, rankdata

    s, t = _checked(scores, seconds)
    if s.size < 2:
        return float("nan")
    # ranks: SciPy drops infinite values otherwise
    return float(kendalltau(rankdata(s), -rankdata(t)).statistic)
