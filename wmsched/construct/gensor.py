"""Gensor's walk (arXiv 2502.11407): a Markov chain over schedules whose benefits are analytic.

The paper leaves much open. Each reading of it is an option of `GensorWalk` or is told in its docstring, with
the number that the ambiguity has in ``docs/explanation/construction.md``.
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wmsched.construct.graph import Graph, Schedule, moved, unscheduled
from wmsched.construct.memory import BANKS, SHARED, Level, TiledBlock
from wmsched.construct.traversal import Found, Walk, ranked
from wmsched.search.decision_space import DecisionSpace, Row, primes
from wmsched.search.evolution import Score, key_of

PRINTED, WORDS = "printed", "words"  # readings of Eq 1
TILE, INVERSE, VTHREAD, CACHE = "tile", "inverse tile", "vthread", "cache"
_OPTIONS = {
    "eq1": (PRINTED, WORDS),
    "policy": ("roulette", "printed"),
    "annealing": ("iteration", "temperature"),
    "ranking": ("own", "model"),
    "choices": ("drawn", "first"),
}


class Move(NamedTuple):
    """One action in one dimension, with the state that it leads to and its benefit."""

    action: str
    row: Row
    level: int
    benefit: float


@dataclass(frozen=True)
class GensorWalk(Walk):
    """Gensor as published, on the rows of MetaSchedule's design spaces.

    A state is a complete row and the number of the memory level that is being tiled. The first one is the
    unscheduled row at the outermost level. `tile` and `inverse tile` move a factor into the level's length of
    a tile and back; a tile that fills the one around it takes the factor from outside both. `vthread` moves
    one from a GPU's threads to its virtual threads. `cache` goes on to the next level inwards, and there is
    no way back (12). A tile that exceeds the level's capacity has probability 0, and so has one that leaves
    the limits of a GPU's block, once it is within them (9). Unrolling and compute locations have no benefit
    in the paper and keep the values they start with (10). A processor has no virtual threads, and three
    levels: L2, L1 and registers (11, 14). Spaces without multi-level tiling, such as a softmax's, are not in
    the graph: the ranker orders schedules drawn of them.

    Parameters
    ----------
    eq1 : "printed" or "words"
        Reading of Eq 1 (1). "printed" is Q(T) F(T') / (Q(T') F(T)), which rewards a larger footprint;
        "words" is Q(T) F(T) / (Q(T') F(T')), which weighs less traffic against it, as the text says.
    annealing : "iteration" or "temperature"
        What t is in the factor of the cache action (2): with the iteration it grows as the text asks.
    temperature, threshold : float
        T at the start, and where it ends (3): about a hundred halvings, as the paper says it takes.
    policy : "roulette" or "printed"
        Algorithm 2 (5): a draw in proportion to the benefits, or its literal test, which returns the first
        action i with rand() >= p_i.
    ranking : "own" or "model"
        What orders the kept states (4): the ns that their traffic takes by the levels' bandwidths, or the
        score.
    every_factor : bool
        Step of a tile (7): its smallest prime factor, or each of them as an action of its own.
    choices : "drawn" or "first"
        Where unrolling and compute locations come from (10): a random schedule, or the first value of each.
    chains : int
        Walks, each from another random schedule's choices, over the spaces in turn.

    Raises
    ------
    ValueError
        An option has another value.
    """

    eq1: str = PRINTED
    annealing: str = "iteration"
    temperature: float = 2.0**50
    threshold: float = 2.0**-50
    policy: str = "roulette"
    ranking: str = "own"
    every_factor: bool = False
    choices: str = "drawn"
    chains: int = 8

    def __post_init__(self) -> None:
        for name, values in _OPTIONS.items():
            if getattr(self, name) not in values:
                raise ValueError(f"GensorWalk.{name}={getattr(self, name)!r} is none of {', '.join(values)}")
        if not 0 < self.threshold < self.temperature or self.chains < 1:
            raise ValueError(
                f"GensorWalk: the threshold {self.threshold} must be above 0 and below the temperature "
                f"{self.temperature}, and chains, {self.chains}, 1 or more"
            )

    def walk(self, graph: Graph, start: Sequence[Schedule], score: Score, rng: random.Random) -> Found:
        """Return the kept states of all chains, ordered as `ranking` says."""
        tiled = [schedule for schedule in start if graph.blocks[schedule[0]] is not None]
        if not tiled:
            return ranked(start, score)
        by_space: dict[int, list[Schedule]] = {}
        for schedule in tiled:
            by_space.setdefault(schedule[0], []).append(schedule)
        turns = list(by_space.values())
        kept: list[Schedule] = []
        for number in range(self.chains):
            mine = turns[number % len(turns)]
            kept += self._chain(graph, mine[number // len(turns) % len(mine)], rng)
        found = ranked([one for one in kept if graph.spaces[one[0]].fits(one[1])] or tiled, score)
        if self.ranking == "own":
            found.sort(key=lambda one: moving_time(graph, one[1]))
        return found

    def _chain(self, graph: Graph, schedule: Schedule, rng: random.Random) -> list[Schedule]:
        """Algorithm 1: return the states that it appends, and the last one."""
        which, given = schedule
        space, block = graph.spaces[which], graph.blocks[which]
        assert block is not None
        row, level = unscheduled(space, given), 0
        if self.choices == "first":
            row = _first_choices(space, row)
        kept: dict[bytes, Schedule] = {}
        state: Schedule
        temperature, iteration = self.temperature, 0
        while temperature > self.threshold:
            t = iteration if self.annealing == "iteration" else temperature
            moves = self.moves(space, block, graph.levels, row, level, cache_factor(t))
            move = self.choose(moves, rng)
            if move is None:
                break
            row, level = move.row, move.level
            state = [which, row]
            if rng.random() < keep_probability(temperature):
                kept[key_of(state)] = state
            temperature, iteration = temperature / 2, iteration + 1
        state = [which, row]
        kept[key_of(state)] = state
        return list(kept.values())

    def choose(self, moves: Sequence[Move], rng: random.Random) -> Move | None:
        """Algorithm 2: return the next move; None without one."""
        total = sum(move.benefit for move in moves)
        if not total > 0:
            return None
        if self.policy == "printed":
            return next((move for move in moves if rng.random() >= move.benefit / total), moves[-1])
        totals = list(itertools.accumulate(move.benefit for move in moves))
        return moves[min(bisect_right(totals, rng.random() * totals[-1]), len(moves) - 1)]

    def moves(
        self,
        space: DecisionSpace,
        block: TiledBlock,
        levels: Sequence[Level],
        row: Row,
        level: int,
        factor: float = 1.0,
    ) -> list[Move]:
        """Return the actions of a state that have a benefit.

        Parameters
        ----------
        level : int
            Number of the memory that is being tiled.
        factor : float
            Of the benefit of the cache action (`cache_factor`).
        """
        here, found = levels[level], []
        tile = block.tile(row, here)
        traffic, footprint = block.traffic(tile), block.footprint(tile)
        for number, slot in enumerate(block.slots):
            part = row[slot.start : slot.start + slot.parts]
            spatial = block.kinds[number] == "S"
            for action, source, to in _steps(part, here, spatial=spatial, vthreads=_has_vthreads(levels)):
                for prime in self._factors(part[source]):
                    lengths = moved(slot, part, prime, source, to)
                    if lengths is None:
                        continue
                    other = (*row[: slot.start], *lengths, *row[slot.start + slot.parts :])
                    if space.fits(row) and not space.fits(other):
                        continue
                    if action == VTHREAD:
                        gain = vthread_benefit(math.prod(part[1:]), part[1], lengths[1])
                    elif action == TILE and block.overflows(other, levels[: level + 1]):
                        continue
                    else:
                        after = block.tile(other, here)
                        new_traffic, new_footprint = block.traffic(after), block.footprint(after)
                        gain = tiling_benefit(traffic, footprint, new_traffic, new_footprint, eq1=self.eq1)
                    found.append(Move(action, other, level, gain))
        if level + 1 < len(levels):
            gain = factor * caching_benefit(here, levels[level + 1], footprint)
            found.append(Move(CACHE, row, level + 1, gain))
        return found

    def _factors(self, length: int) -> list[int]:
        found = list(dict.fromkeys(primes(length)))
        return found if self.every_factor else found[:1]


def _steps(part: Row, level: Level, *, spatial: bool, vthreads: bool) -> list[tuple[str, int, int]]:
    """Return the actions on one tile: (action, length that a factor is taken from, length that gets it)."""
    path = level.spatial_moves if spatial else level.reduction_moves
    found = []
    if path is not None:
        sources, to = path
        source = next((k for k in sources if part[k] > 1), None)
        found += [] if source is None else [(TILE, source, to)]
        found.append((INVERSE, to, sources[0]))
    if spatial and vthreads:
        found.append((VTHREAD, 2, 1))
    return found


def _has_vthreads(levels: Sequence[Level]) -> bool:
    return levels[0].name == SHARED


def tiling_benefit(
    traffic: float, footprint: float, new_traffic: float, new_footprint: float, *, eq1: str
) -> float:
    """Return Eq 1, of Q(T), F(T), Q(T') and F(T'), in one of its readings."""
    growth = new_footprint / footprint
    return traffic / new_traffic * (growth if eq1 == PRINTED else 1 / growth)


def caching_benefit(low: Level, high: Level, size: float) -> float:
    """Return Eq 2: the time that `size` bytes take from a memory, over that from the next one inwards."""
    return (low.latency + size / low.bandwidth) / (high.latency + size / high.bandwidth)


def vthread_benefit(width: int, before: int, after: int) -> float:
    """Return Eq 3: a tile's bank conflicts with `before` virtual threads over those with `after`."""
    return math.ceil(width / (before * BANKS)) / math.ceil(width / (after * BANKS))


def cache_factor(t: float) -> float:
    """Return the factor of the cache action: 0.5 at 0, 1.5 at 10, towards 3."""
    return 3 / (1 + math.exp(min(-(math.log(5) / 10) * (t - 10), 700.0)))


def keep_probability(temperature: float) -> float:
    """Return the probability that Algorithm 1 appends a state: near 1 when hot, half at e^-10."""
    return 1 - 1 / (1 + math.exp(min(-0.5 * (-math.log(temperature) - 10), 700.0)))


def moving_time(graph: Graph, schedule: Schedule) -> float:
    """Return the ns that a schedule's traffic takes; infinite without a tiled block."""
    block = graph.blocks[schedule[0]]
    return math.inf if block is None else block.moving_time(schedule[1], graph.levels)


def _first_choices(space: DecisionSpace, row: Row) -> Row:
    lengths = list(row)
    for slot in space.slots:
        if not slot.innermost:
            lengths[slot.start] = slot.choices[0]
    return tuple(lengths)
