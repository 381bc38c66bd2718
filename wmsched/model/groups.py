"""Groups of measured candidates that a ranker is fitted to, and the labels they give."""

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
    """The measured candidates of one workload: rows float32 [N, F]; seconds [N], NaN for a failed one.

    ``slowdown`` is the place of the column `parallel_features.SLOWDOWN` in the rows; -1 where there is none.
    """

    key: str
    rows: Floats
    seconds: NDArray[np.float64]
    network: str = ""
    slowdown: int = -1

    @property
    def features(self) -> Floats:
        """What trees are given: float32 [N, F], or F - 1 without the column of the slowdown."""
        return drop_column(self.rows, self.slowdown)

    @property
    def even(self) -> NDArray[np.float64]:
        """Seconds [N] that equal shares of the work would take."""
        return self.seconds if self.slowdown < 0 else self.seconds / 2.0 ** self.rows[:, self.slowdown]


def drop_column(rows: Floats, column: int) -> Floats:
    """Rows without a column; as they are where it is -1."""
    return rows if column < 0 else np.delete(rows, column, axis=1)


def relative_speed(seconds: ArrayLike) -> NDArray[np.float64]:
    """best seconds / seconds of one workload, in [0, 1]; 0 for what failed (not a positive finite time)."""
    t = np.asarray(seconds, dtype=np.float64)
    ok = np.isfinite(t) & (t > 0)
    result = np.zeros_like(t)
    if ok.any():
        result[ok] = t[ok].min() / t[ok]
    return result


def relevance(seconds: ArrayLike, *, by: str = "ratio") -> NDArray[np.int64]:
    """Relevance labels 0..31 of one workload's candidates, the fastest 31; a failed one gets 0.

    Parameters
    ----------
    seconds : [N]
    by : "ratio" buckets best/seconds, so that near times are alike; "order" buckets the place
    """
    ratio = relative_speed(seconds)
    ok = ratio > 0
    if by == "order" and ok.any():
        times = np.unique(ratio[ok])  # ascending speed; equal times share their place
        ratio[ok] = (np.searchsorted(times, ratio[ok]) + 1) / len(times)
    labels = 1 + np.floor(ratio * (MAX_LABEL - 1) + 1e-9)
    return np.where(ok, np.clip(labels, 1, MAX_LABEL), 0).astype(np.int64)


def spread_of(margins: Sequence[NDArray[Any]]) -> float:
    """The standard deviation of scores within a workload, of each of which these are the scores."""
    variance = float(np.mean([np.var(part) for part in margins]))
    return variance**0.5 if variance > 1e-12 else 1.0


def informative(group: RankGroup) -> bool:
    """Whether two of a group's candidates differ in speed: without that there is no order to learn."""
    return len(np.unique(relative_speed(group.even))) > 1


def learnable(groups: Sequence[RankGroup]) -> list[RankGroup]:
    """The informative groups; DatasetError where there is none."""
    kept = [group for group in groups if informative(group)]
    if not kept:
        raise DatasetError("no workload has two measured programs of different speed to learn an order from")
    return kept
