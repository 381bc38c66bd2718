"""Traversals: how the schedules of a task are gone through before one is chosen, in the model alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from wmsched.construct.graph import Graph, Schedule
from wmsched.search.evolution import Mutate, Score, key_of

Found = list[tuple[bytes, Any]]
"""(key, schedule), best first."""
Self = TypeVar("Self", bound="Walk")


class Traversal(Protocol):
    """What `wmsched.search.evolution.Evolution` is: schedules to start from -> schedules, best first.

    Attributes
    ----------
    population : int
        Number of schedules that it starts from.
    """

    @property
    def population(self) -> int:
        """Number of schedules that it starts from."""

    def __call__(self, start: Sequence[Any], score: Score, mutate: Mutate, rng: random.Random) -> Found:
        """Return (key, schedule) of schedules with a finite score, best first.

        Parameters
        ----------
        start : sequence of schedules
            Random ones, and the best measured ones; at least one.
        score : callable
            (keys, schedules) -> scores; it is asked of every schedule that is returned.
        mutate : callable
            A schedule -> another one, or None.
        rng : random.Random
        """


@dataclass(frozen=True)
class Draw:
    """Random schedules, ranked: the least that a traversal has to beat."""

    population: int = 1024

    def __call__(self, start: Sequence[Any], score: Score, mutate: Mutate, rng: random.Random) -> Found:
        """Return the schedules of `start` with a finite score, best first."""
        return ranked(start, score)


@dataclass(frozen=True)
class Walk:
    """Traversal of a task's `Graph`, which it gets by `on` before it is called.

    Parameters
    ----------
    graph : Graph, optional
    population : int
        Number of schedules that it starts from.
    """

    graph: Graph | None = None
    population: int = 64

    def on(self: Self, graph: Graph) -> Self:
        """Return the same walk on a graph."""
        return replace(self, graph=graph)

    def __call__(self, start: Sequence[Any], score: Score, mutate: Mutate, rng: random.Random) -> Found:
        """Return (key, schedule), best first, as `Traversal` says.

        Raises
        ------
        ValueError
            The walk is on no graph.
        """
        if self.graph is None:
            raise ValueError(f"{type(self).__name__} is on no graph: call `on` with a task's graph first")
        return self.walk(self.graph, start, score, rng)

    def walk(self, graph: Graph, start: Sequence[Schedule], score: Score, rng: random.Random) -> Found:
        """Return (key, schedule), best first."""
        raise NotImplementedError


def ranked(schedules: Sequence[Any], score: Score) -> Found:
    """Return the different schedules with a finite score, best first."""
    seen = {key_of(schedule): schedule for schedule in schedules}
    keys, different = list(seen), list(seen.values())
    scores = np.asarray(score(keys, different), dtype=np.float64)
    order = np.argsort(-np.where(np.isfinite(scores), scores, -np.inf), kind="stable")
    return [(keys[k], different[k]) for k in order.tolist() if np.isfinite(scores[k])]
