"""Gensor's graph with the ranker's benefit: how much faster it takes the next schedule to be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.construct.graph import Graph, Schedule, unscheduled
from wmsched.construct.traversal import Found, Walk, ranked
from wmsched.search.evolution import Score, key_of


@dataclass(frozen=True)
class LearnedWalk(Walk):
    """Chains over a task's graph, each step drawn in proportion to exp((margin(T') - margin(T)) / tau).

    Every neighbour is scored, so every one may be the result. The temperature tau falls evenly, and the chain
    becomes a climb.

    Parameters
    ----------
    population : int
        Random schedules, the best of which the chains start from.
    chains, steps : int
    hot, cold : float
        tau of the first and of the last step, in the ranker's margin: 1.4 is a factor of two in time.
    start : "drawn" or "unscheduled"
        Where a chain starts: at a random schedule, or at its row without tiles, as Gensor's.
    results : int
        Schedules that are scored at the end.
    """

    population: int = 256
    chains: int = 8
    steps: int = 16
    hot: float = 1.0
    cold: float = 0.05
    start: str = "drawn"
    results: int = 256

    def __post_init__(self) -> None:
        if self.start not in ("drawn", "unscheduled"):
            raise ValueError(f"LearnedWalk.start={self.start!r} is neither drawn nor unscheduled")
        if not 0 < self.cold <= self.hot or min(self.chains, self.steps) < 1:
            raise ValueError(
                f"LearnedWalk: 0 < cold <= hot is wanted, got {self.cold} and {self.hot}; chains and steps, "
                f"{self.chains} and {self.steps}, must be 1 or more"
            )

    def walk(self, graph: Graph, start: Sequence[Schedule], score: Score, rng: random.Random) -> Found:
        """Return the schedules of largest margin, best first."""
        seen = _Seen(graph)
        margins = seen.margins(list(start))
        order = np.argsort(-np.where(np.isfinite(margins), margins, -np.inf), kind="stable")
        now = [start[k] for k in order[: self.chains].tolist()]
        if self.start == "unscheduled":
            now = [[which, unscheduled(graph.spaces[which], row)] for which, row in now]
        taus = np.linspace(self.hot, self.cold, self.steps)
        for tau in taus.tolist():
            around = [graph.neighbours(one) for one in now]
            found = seen.margins([each for group in around for each in group])
            ends = np.cumsum([len(group) for group in around])[:-1]
            for number, (group, values) in enumerate(zip(around, np.split(found, ends))):
                place = drawn(values / tau, rng)
                if place is not None:
                    now[number] = group[place]
        return ranked(seen.best(self.results) or list(start), score)


class _Seen:
    """Margins of the schedules that a walk has seen."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._margins: dict[bytes, float] = {}
        self._schedules: dict[bytes, Schedule] = {}

    def margins(self, schedules: Sequence[Schedule]) -> NDArray[np.float64]:
        keys = [key_of(schedule) for schedule in schedules]
        fresh = {key: one for key, one in zip(keys, schedules) if key not in self._margins}
        if fresh:
            margins, _ = self._graph.judge(list(fresh.values()))
            self._margins.update(zip(fresh, np.asarray(margins, dtype=np.float64).tolist()))
            self._schedules |= fresh
        return np.array([self._margins[key] for key in keys])

    def best(self, count: int) -> list[Any]:
        finite = [key for key, margin in self._margins.items() if np.isfinite(margin)]
        return [self._schedules[key] for key in sorted(finite, key=lambda key: -self._margins[key])[:count]]


def drawn(logits: NDArray[np.float64], rng: random.Random) -> int | None:
    """Return a place, drawn in proportion to exp(logit); NaN is never drawn. None without a number."""
    known = np.isfinite(logits)
    if not known.any():
        return None
    weights = np.where(known, np.exp(np.where(known, logits, 0.0) - logits[known].max()), 0.0)
    totals = np.cumsum(weights)
    return int(np.searchsorted(totals, rng.random() * totals[-1], side="right").clip(0, len(logits) - 1))
