"""Evolutionary search over transform steps in the model alone: no lowering, no measurement.

The algorithm is AutoScheduler's (evolutionary_search.cc). TVM replays and bounds every generation, which
takes 10 to 100 times as long as scoring it here.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import ArrayLike

from wmsched.search.mutations import Steps

Mutate = Callable[[Steps], Steps | None]
"""A schedule -> another one; None where nothing could be changed."""
Score = Callable[[Sequence[bytes], Sequence[Steps]], ArrayLike]
"""(keys, schedules) -> scores [N], above 0; not finite for what is not to be measured."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """Evolutionary search with a given population and number of generations.

    Parameters
    ----------
    population : int
        Schedules in a generation.
    generations : int
        Number after the first.
    mutated : float
        Share of a generation that is mutated; the rest are parents that survive.

    Examples
    --------
    >>> found = Evolution(population=64)(start, score, mutations, random.Random(0))  # doctest: +SKIP
    >>> key, best = found[0]  # doctest: +SKIP
    """

    population: int = 2048
    generations: int = 4
    mutated: float = 0.85

    def __call__(
        self, start: Sequence[Steps], score: Score, mutate: Mutate, rng: random.Random
    ) -> list[tuple[bytes, Steps]]:
        """Return (key, steps) of every schedule seen with a finite score, best first.

        Parameters
        ----------
        start : sequence of steps
            The first generation; at least one.
        score : callable
            Parents are drawn in proportion to it. At the end it scores all schedules again, because its
            result may depend on earlier calls.
        """
        seen: dict[bytes, Steps] = {}
        now = list(start)
        for generation in range(self.generations + 1):
            keys = [key_of(steps) for steps in now]
            seen.update(zip(keys, now))
            if generation == self.generations:
                break
            scores = np.asarray(score(keys, now), dtype=np.float64)
            weights = np.where(np.isfinite(scores), np.maximum(scores, 0.0), 0.0)
            if not weights.sum() > 0:
                weights = np.ones(len(now))
            totals = list(itertools.accumulate(weights.tolist()))
            children: list[Steps] = []
            while len(children) < self.population:
                parent = now[min(bisect(totals, rng.random() * totals[-1]), len(now) - 1)]
                child = mutate(parent) if rng.random() < self.mutated else None
                children.append(parent if child is None else child)
            now = children
        keys, schedules = list(seen), list(seen.values())
        scores = np.asarray(score(keys, schedules), dtype=np.float64)
        order = np.argsort(-np.where(np.isfinite(scores), scores, -np.inf), kind="stable")
        return [(keys[k], schedules[k]) for k in order.tolist() if np.isfinite(scores[k])]


def key_of(steps: Steps) -> bytes:
    """Return the identity of a schedule."""
    return orjson.dumps(steps)
