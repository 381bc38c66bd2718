"""Ranking metrics: top-k score, pairwise accuracy, Kendall's tau, regret.

`scores` are the model's (higher means predicted faster); `seconds` are measured times of the same programs of
one workload. A time that is not positive and finite is a failed measurement and counts as infinitely slow.
Programs with equal scores are taken slowest first, so ties earn no credit from the file's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_LISTED_PROGRAMS = 1000  # above it pairs are counted by sorting; a list of pairs grows quadratically

Task = tuple[float, ArrayLike, ArrayLike]
"""(weight, scores, seconds) of one workload in a network; the weight is its number of occurrences."""


def _checked(scores: ArrayLike, seconds: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both as float64, failed times as infinity; raise ValueError for NaN scores, unequal lengths."""
    s = np.asarray(scores, dtype=np.float64)
    t = np.asarray(seconds, dtype=np.float64)
    if s.ndim != 1 or s.shape != t.shape:
        raise ValueError(f"scores {s.shape} and seconds {t.shape} must be one-dimensional and of one length")
    if np.isnan(s).any():
        raise ValueError(f"{int(np.isnan(s).sum())} of {s.size} scores are NaN: such a model ranks nothing")
    return s, np.where(np.isfinite(t) & (t > 0), t, np.inf)


def _best_of_first(scores: ArrayLike, seconds: ArrayLike, k: int) -> tuple[float, float]:
    """Return (best seconds of all, best seconds among the k ranked first)."""
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    s, t = _checked(scores, seconds)
    if t.size == 0 or not np.isfinite(t).any():
        raise ValueError("no program of this workload has a measured time: leave the workload out")
    first = np.lexsort((-t, -s))[:k]
    return float(t.min()), float(t[first].min())


def top_k_score(scores: ArrayLike, seconds: ArrayLike, k: int) -> float:
    """Return best seconds / best seconds among the k programs ranked first; in [0, 1], 1 is perfect.

    Raises
    ------
    ValueError
        No time was measured, lengths differ, a score is NaN, or k < 1.
    """
    best, chosen = _best_of_first(scores, seconds, k)
    return best / chosen


def network_top_k_score(tasks: Sequence[Task], k: int) -> float:
    """Return TenSet's score of one network: sum_i w_i best_i / sum_i w_i chosen_i(k), over its workloads."""
    pairs = [(weight, *_best_of_first(scores, seconds, k)) for weight, scores, seconds in tasks]
    return sum(w * best for w, best, _ in pairs) / sum(w * chosen for w, _, chosen in pairs)


def top_k_score_averaged(networks: Sequence[Sequence[Task]], k: int) -> float:
    """Return the mean of the networks' scores, TenSet's definition."""
    return float(np.mean([network_top_k_score(tasks, k) for tasks in networks]))


def top_k_score_pooled(networks: Sequence[Sequence[Task]], k: int) -> float:
    """Return the score with all networks' sums pooled before dividing, TLP's definition."""
    return network_top_k_score([task for tasks in networks for task in tasks], k)


def regret(scores: ArrayLike, seconds: ArrayLike, k: int = 1) -> float:
    """Return how much slower the best of the k programs ranked first is than the best; 0.25 is 25 % slower.

    The regret is infinite if all k failed.
    """
    best, chosen = _best_of_first(scores, seconds, k)
    return chosen / best - 1.0


def pairwise_accuracy(scores: ArrayLike, seconds: ArrayLike) -> float:
    """Return the share of pairs with different times that the scores order correctly; ties count a half.

    The result is NaN if no two times differ.
    """
    s, t = _checked(scores, seconds)
    if t.size > MAX_LISTED_PROGRAMS:
        return _counted_accuracy(s, t)
    i, j = np.triu_indices(t.size, k=1)
    differs = t[i] != t[j]  # two failures count as equal
    i, j = i[differs], j[differs]
    if i.size == 0:
        return float("nan")
    # comparisons, not differences: infinity minus infinity has no sign
    faster = np.where(t[i] < t[j], 1.0, -1.0)
    preferred = (s[i] > s[j]).astype(np.float64) - (s[i] < s[j])
    return float(np.mean((faster * preferred + 1.0) / 2.0))


def _counted_accuracy(s: NDArray[np.float64], t: NDArray[np.float64]) -> float:
    """Return the pairwise accuracy without a list of pairs, in the time of a few sorts."""
    ranks = np.unique(s, return_inverse=True)[1].astype(np.int64)
    times = np.unique(t, return_inverse=True)[1].astype(np.int64)
    differ = t.size * (t.size - 1) // 2 - _equal_pairs(times)
    if not differ:
        return float("nan")
    # pairs of equal scores with different times
    halves = _equal_pairs(ranks) - _equal_pairs(ranks * (1 + times.max()) + times)
    # fastest first and, among equal times, lowest score first: a falling pair is then in order
    right = _falling_pairs(ranks[np.lexsort((ranks, times))])
    return float((right + halves / 2) / differ)


def _equal_pairs(values: NDArray[np.int64]) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _falling_pairs(values: NDArray[np.int64]) -> int:
    """Return the number of pairs with the larger first, by merging sorted blocks of integers >= 0."""
    place, span, total, size = np.arange(values.size), int(values.max()) + 1, 0, 1
    while size < values.size:
        block = place // (2 * size)
        keys = block * span + values  # sorted, each stays in its block
        late = place // size % 2 == 1  # in its block's second half; both halves are sorted
        early = keys[~late]
        ends = np.searchsorted(early, (block[late] + 1) * span)
        total += int((ends - np.searchsorted(early, keys[late], side="right")).sum())
        values = np.sort(keys) - block * span
        size *= 2
    return total


def kendall_tau(scores: ArrayLike, seconds: ArrayLike) -> float:
    """Return Kendall's tau-b of score and speed, in [-1, 1]; NaN if all scores or all times are equal."""
    from scipy.stats import kendalltau, rankdata

    s, t = _checked(scores, seconds)
    if s.size < 2:
        return float("nan")
    # ranks, because SciPy drops infinite values
    return float(kendalltau(rankdata(s), -rankdata(t)).statistic)
