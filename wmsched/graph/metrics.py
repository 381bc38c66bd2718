"""How well scores rank a graph's configurations, as the official evaluation of TpuGraphs defines it.

Scores are low for fast, as everywhere in `wmsched.graph`. Of equal scores the earlier configuration comes
first, as in the official script, whose sort is stable.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

LAYOUT_SLOWDOWNS = (1, 5, 10, 100)  # official: 1, 10, 100
TILE_SLOWDOWNS = (1, 5, 10)


def _checked(scores: ArrayLike, runtimes: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    s, r = np.asarray(scores, np.float64), np.asarray(runtimes, np.float64)
    if s.ndim != 1 or s.shape != r.shape or not s.size:
        raise ValueError(f"scores {s.shape} and runtimes {r.shape} must be one-dimensional and of one length")
    if not np.isfinite(s).all():
        raise ValueError(f"{int((~np.isfinite(s)).sum())} of {s.size} scores are not finite")
    if not (np.isfinite(r) & (r > 0)).all():
        raise ValueError("runtimes must be above 0; the official test files have none")
    return s, r


def kendall_tau(scores: ArrayLike, runtimes: ArrayLike, *, variant: str = "b") -> float:
    """Kendall's rank correlation in [-1, 1].

    Parameters
    ----------
    scores, runtimes : [c]
    variant : str
        "b", corrected for ties: SciPy's, which the official evaluation and the published code use. "a": Eq 9,
        in which a tied pair adds 0 to the sum and is counted among the pairs.

    Returns
    -------
    float
        NaN where all scores or all runtimes are equal ("b"), or for one configuration.
    """
    s, r = _checked(scores, runtimes)
    if variant not in ("a", "b"):
        raise ValueError(f"variant={variant!r} is none of a, b")
    if s.size < 2:
        return float("nan")
    from scipy.stats import kendalltau

    tau_b = float(kendalltau(s, r).statistic)
    if variant == "b":
        return tau_b
    pairs = s.size * (s.size - 1) / 2
    untied = [pairs - _tied_pairs(values) for values in (s, r)]
    # both are concordant less discordant pairs, over another number of pairs
    return 0.0 if 0 in untied else tau_b * float(np.sqrt(untied[0] * untied[1])) / pairs


def _tied_pairs(values: NDArray[np.float64]) -> float:
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())


def slowdown(scores: ArrayLike, runtimes: ArrayLike, k: int) -> float:
    """Return (fastest of the k ranked first - fastest of all) / fastest of all; 0 is perfect."""
    s, r = _checked(scores, runtimes)
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    first = np.argsort(s, kind="stable")[:k]
    return float((r[first].min() - r.min()) / r.min())


def tile_score(scores: ArrayLike, runtimes: ArrayLike, *, k: int = 5) -> float:
    """M_tile (Eq 10): 2 - fastest of the k ranked first / fastest of all, which is 1 - slowdown."""
    return 1.0 - slowdown(scores, runtimes, k)


def best_of(scores: ArrayLike, runtimes: ArrayLike, *, k: int = 5) -> float:
    """Return fastest of all / fastest of the k ranked first, in (0, 1]: the share of the best speed."""
    return 1.0 / (1.0 + slowdown(scores, runtimes, k))


def quality(scores: ArrayLike, runtimes: ArrayLike, *, kind: str) -> dict[str, float]:
    """Return all metrics of one graph by name; the slowdowns are those official for its kind."""
    row = {"tau": kendall_tau(scores, runtimes), "tau_a": kendall_tau(scores, runtimes, variant="a")}
    for k in TILE_SLOWDOWNS if kind == "tile" else LAYOUT_SLOWDOWNS:
        row[f"slowdown_{k}"] = slowdown(scores, runtimes, k)
    return row | {"best_of_5": best_of(scores, runtimes), "tile_score": tile_score(scores, runtimes)}
