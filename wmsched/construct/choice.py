"""Final choices: which of the schedules that a traversal has ranked is taken.

A traversal ends at the largest score, and the largest of thousands of scores is too often one that the ranker
has overestimated. The robust choices order the best few anew by more than one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wmsched.construct.graph import Graph
from wmsched.construct.traversal import Found
from wmsched.model.ranker import MARGIN_PER_DOUBLING


class Choice(Protocol):
    """(found, graph) -> the same schedules in another order, the one to be taken first."""

    def __call__(self, found: Found, graph: Graph) -> Found:
        """Return `found`, best first, in another order."""


@dataclass(frozen=True)
class First:
    """The traversal's order."""

    def __call__(self, found: Found, graph: Graph) -> Found:
        """Return `found`."""
        return found


@dataclass(frozen=True)
class Smoothed:
    """By the mean margin of a schedule and its neighbours: a good region beats a good point.

    Parameters
    ----------
    top : int
        Schedules that are ordered anew.
    own : float
        Weight of a schedule's own margin; the neighbours' mean has the rest.
    """

    top: int = 32
    own: float = 0.5

    def __call__(self, found: Found, graph: Graph) -> Found:
        """Return `found` with its first `top` ordered anew."""
        best = found[: self.top]
        if not best:
            return found
        around = [graph.neighbours(schedule) for _, schedule in best]
        margins, _ = graph.judge([schedule for _, schedule in best])
        others, _ = graph.judge([each for group in around for each in group])
        groups = np.split(others, np.cumsum([len(group) for group in around])[:-1])
        means = [_mean(group, margin) for group, margin in zip(groups, margins)]
        return _reordered(found, self.own * margins + (1 - self.own) * np.array(means))


@dataclass(frozen=True)
class Agreement:
    """By register tile: the tile whose schedules have the largest sum of predicted speeds comes first.

    Parameters
    ----------
    top : int
        Schedules whose tiles are counted.
    """

    top: int = 256

    def __call__(self, found: Found, graph: Graph) -> Found:
        """Return `found` with the first tile's schedules first; within a tile the order stays."""
        best = found[: self.top]
        if not best:
            return found
        margins, _ = graph.judge([schedule for _, schedule in best])
        speeds = np.exp2(np.nan_to_num(margins - np.nanmax(margins), nan=-np.inf) / MARGIN_PER_DOUBLING)
        tiles = [graph.register_tile(schedule) for _, schedule in best]
        sums: dict[object, float] = {}
        for tile, speed in zip(tiles, speeds.tolist()):
            sums[tile] = sums.get(tile, 0.0) + speed
        return _reordered(found, np.array([sums[tile] for tile in tiles]))


@dataclass(frozen=True)
class Spread:
    """By margin less the spread of the ranker's members: what they disagree about is not taken.

    A ranker of one member has no spread, and the order stays.

    Parameters
    ----------
    top : int
        Schedules that are ordered anew.
    weight : float
        Of the spread, one standard deviation of the members' margins.
    """

    top: int = 256
    weight: float = 1.0

    def __call__(self, found: Found, graph: Graph) -> Found:
        """Return `found` with its first `top` ordered anew."""
        best = found[: self.top]
        if not best:
            return found
        margins, spreads = graph.judge([schedule for _, schedule in best])
        return _reordered(found, margins - self.weight * spreads)


def _mean(values: NDArray[np.float64], otherwise: float) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float(otherwise)


def _reordered(found: Found, values: Sequence[float] | NDArray[np.float64]) -> Found:
    """Return `found` with its first few by their values, largest first; NaN last."""
    given = np.asarray(values, dtype=np.float64)
    order = np.argsort(-np.where(np.isnan(given), -math.inf, given), kind="stable")
    return [found[k] for k in order.tolist()] + found[len(given) :]
