"""Groups of measured candidates that a ranker is trained on, and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmsched.base.errors import DatasetError

MAX_LABEL = 31  # XGBoost refuses larger relevance labels with exponential gain
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class RankGroup:
    """Measured candidates of one workload: rows float32 [N, F]; seconds [N], NaN if failed.

    ``slowdown`` is the index of the column `SLOWDOWN` in the rows; -1 if they have none.

    Examples
    --------
    >>> RankGroup("key", np.zeros((2, 3), np.float32), np.array([1e-3, np.nan]))  # doctest: +SKIP
    """

    key: str
    rows: Floats
    seconds: NDArray[np.float64]
    network: str = ""
    slowdown: int = -1

    @property
    def features(self) -> Floats:
        """Input of the trees: float32 [N, F], or [N, F - 1] without the slowdown column."""
        return drop_column(self.rows, self.slowdown)

    @property
    def even(self) -> NDArray[np.float64]:
        """Seconds [N] if the threads shared the work equally."""
        return self.seconds if self.slowdown < 0 else self.seconds / 2.0 ** self.rows[:, self.slowdown]


def drop_column(rows: Floats, column: int) -> Floats:
    """Return rows without a column; unchanged if it is -1."""
    return rows if column < 0 else np.delete(rows, column, axis=1)


def relative_speed(seconds: ArrayLike) -> NDArray[np.float64]:
    """Return best seconds / seconds of one workload, in [0, 1]; 0 if failed (no positive finite time)."""
    t = np.asarray(seconds, dtype=np.float64)
    ok = np.isfinite(t) & (t > 0)
    result = np.zeros_like(t)
    if ok.any():
        result[ok] = t[ok].min() / t[ok]
    return result


def relevance(seconds: ArrayLike, *, by: str = "ratio") -> NDArray[np.int64]:
    """Return relevance labels 0..31 of one workload's candidates: 31 is the fastest, 0 a failed one.

    Parameters
    ----------
    seconds : [N]
    by : "ratio" buckets best/seconds, so near times share a label; "order" buckets the rank
    """
    ratio = relative_speed(seconds)
    ok = ratio > 0
    if by == "order" and ok.any():
        times = np.unique(ratio[ok])  # ascending speed; equal times share a rank
        ratio[ok] = (np.searchsorted(times, ratio[ok]) + 1) / len(times)
    labels = 1 + np.floor(ratio * (MAX_LABEL - 1) + 1e-9)
    return np.where(ok, np.clip(labels, 1, MAX_LABEL), 0).astype(np.int64)


def spread_of(margins: Sequence[NDArray[Any]]) -> float:
    """Return the within-workload standard deviation of scores, given one array a workload."""
    variance = float(np.mean([np.var(part) for part in margins]))
    return variance**0.5 if variance > 1e-12 else 1.0


def informative(group: RankGroup) -> bool:
    """Return whether two of a group's candidates differ in speed, so there is an order to learn."""
    return len(np.unique(relative_speed(group.even))) > 1


def learnable(groups: Sequence[RankGroup]) -> list[RankGroup]:
    """Return the informative groups; raise DatasetError if there is none."""
    kept = [group for group in groups if informative(group)]
    if not kept:
        raise DatasetError("no workload has two measured programs of different speed to learn an order from")
    return kept
