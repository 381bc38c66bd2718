"""An evolutionary search over transform steps, all of it in the model: nothing is lowered, nothing measured.

As AutoScheduler's (evolutionary_search.cc), whose generations TVM replays and bounds one by one, which takes
ten to a hundred times as long as scoring them here.
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
    """How long and how wide.

    Parameters
    ----------
    population : int
        Schedules of a generation.
    generations : int
        After the first.
    mutated : float
        Share of a generation that is changed; the rest are parents that live on.
    """

    population: int = 2048
    generations: int = 4
    mutated: float = 0.85

    def __call__(
        self, start: Sequence[Steps], score: Score, mutate: Mutate, rng: random.Random
    ) -> list[tuple[bytes, Steps]]:
        """Every schedule that was seen and has a finite score, the best first, each with its key.

        Parameters
        ----------
        start : sequence of steps
            The first generation; at least one.
        score : callable
            Parents are drawn in proportion to it. It is asked again of all that was seen in the end: what it
            says may depend on what it has been asked before.
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
    """What tells one schedule from another."""
    return orjson.dumps(steps)
