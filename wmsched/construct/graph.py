"""Construction graph of a task: complete schedules, linked by the changes of one decision.

Gensor's graph has partial schedules. In a design space of MetaSchedule every state is a complete row of
decisions: what is not tiled has all its iterations in the outermost length of its tile. A tile grows or
shrinks where a factor moves between two lengths. Every state can thus be scored, built and run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.construct.memory import Level, TiledBlock, levels_of, tiled_block
from wmsched.schedules.types import Workload
from wmsched.search.decision_space import DecisionSpace, Row, Slot, primes
from wmsched.search.register_tiles import Tile

Schedule = list[Any]  # [index of the space, row]
Judge = Callable[[Sequence[Schedule]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Schedules -> margins [N], higher is faster, and their spread over the ranker's members [N]; NaN where a
schedule cannot be read or does not fit."""


class Graph:
    """All schedules of one task.

    Parameters
    ----------
    spaces : sequence of DecisionSpace
    workload : Workload
        What the task computes, and for which target.
    judge : callable
        A `Judge`.

    Attributes
    ----------
    blocks : list of TiledBlock or None
        Of each space, the block that multi-level tiling splits; None for a space without one.
    levels : tuple of Level
        Memories of the target, outermost first.

    Examples
    --------
    >>> graph = Graph(spaces, workload, judge)  # doctest: +SKIP
    >>> margins, _ = graph.judge(graph.neighbours(schedule))  # doctest: +SKIP
    """

    def __init__(self, spaces: Sequence[DecisionSpace], workload: Workload, judge: Judge) -> None:
        self.spaces, self.judge = list(spaces), judge
        self.blocks: list[TiledBlock | None] = [tiled_block(space, workload) for space in self.spaces]
        self.levels: tuple[Level, ...] = levels_of(workload)

    def neighbours(self, schedule: Schedule) -> list[Schedule]:
        """Return the schedules that differ in one decision and fit: in a tile, one prime factor is moved."""
        which, row = schedule
        space = self.spaces[which]
        found: dict[Row, None] = {}
        for slot in space.slots:
            for part in _alternatives(slot, row[slot.start : slot.start + slot.parts]):
                other = (*row[: slot.start], *part, *row[slot.start + slot.parts :])
                if space.fits(other):
                    found[other] = None
        return [[which, other] for other in found]

    def register_tile(self, schedule: Schedule) -> Tile | None:
        """Return the register tile of a schedule for a processor; None without multi-level tiling."""
        which, row = schedule
        return self.spaces[which].register_tile(row)


def _alternatives(slot: Slot, part: Row) -> list[Row]:
    """Return what else one decision may be, a step away."""
    if not slot.innermost:
        return [(value,) for value in slot.choices if value != part[0]]
    found = []
    for source, length in enumerate(part):
        for factor in dict.fromkeys(primes(length)):
            for to in range(slot.parts):
                if to != source and (other := moved(slot, part, factor, source, to)) is not None:
                    found.append(other)
    return found


def moved(slot: Slot, part: Row, factor: int, source: int, to: int) -> Row | None:
    """Return a tile's lengths with a factor moved from one to another; None where that is not allowed."""
    if part[source] % factor:
        return None
    lengths = list(part)
    lengths[source] //= factor
    lengths[to] *= factor
    return None if lengths[-1] > slot.innermost else tuple(lengths)


def unscheduled(space: DecisionSpace, row: Row) -> Row:
    """Return a row with all iterations of each tile in its outermost length; other decisions stay."""
    lengths = list(row)
    for slot in space.slots:
        if slot.innermost and slot.parts > 1:
            lengths[slot.start : slot.start + slot.parts] = [slot.extent] + [1] * (slot.parts - 1)
    return tuple(lengths)
