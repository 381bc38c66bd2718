"""Schedules of one of MetaSchedule's design spaces as rows of numbers, drawn and changed without TVM.

A space is a trace whose sampling instructions can be decided anew; a row holds what is decided, one
instruction after the other: the lengths of a tile, the number of a category's choice, where a stage is
computed. On a GPU most rows ask for more threads than a block may have, which the row alone tells. Where a
stage may be computed hangs on the tiles, and TVM moves it out to the last place that will do: several rows
can mean one schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import LogError
from wmsched.search.register_tiles import Tile
from wmsched.search.tiles import move_factor

Row = tuple[int, ...]

VTHREADS = 8  # of a block, at most: VerifyGPUCode's max_vthread
TILES = 0.85  # of the changes; the others choose anew (MetaSchedule's: 0.9, 0.08 of unrolling)
TRIES = 6  # of a change that turns out to be none
DRAWN = 1 << 14  # rows that are drawn at once, of which a few in a hundred are within a block's limits
LEAST = 256  # rows that are drawn at once at least, where all of them fit
LEVELS = 4  # of the tiles of a processor's spatial loops, of which the inner two stay in registers
DEPTH = 32  # loops of a nest in which a stage is computed, before it is known how many there are
EMPTY = 3  # draws without a new row after which a space is taken for used up
_LOW, _HIGH = "meta_schedule.thread_extent_low_inclusive", "meta_schedule.thread_extent_high_inclusive"


@dataclass(frozen=True)
class Slot:
    """A decision's place in a row.

    Parameters
    ----------
    instruction : int
        The number of the one that decides.
    start, parts : int
        Where it begins, and how many numbers it has.
    extent : int
        What a tile's lengths multiply to; of others, how many choices there are.
    innermost : int
        The longest last length of a tile; 0 for others.
    choices : tuple of int
        What is decided otherwise: the number of a category's choice; the number of the loop of its first
        consumer's nest that a stage is computed in, -1 for the root, -2 to inline it. () for a tile.
    chances : tuple of float
        Of the choices.
    place : bool
        Whether it is where a stage is computed.
    """

    instruction: int
    start: int
    parts: int
    extent: int
    innermost: int = 0
    choices: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()
    place: bool = False


class DecisionSpace:
    """The rows of one space.

    Parameters
    ----------
    trace : [instructions, decisions]
        ``trace.as_json()`` of the space, without postprocessors.
    threads : int
        Of a block, at most.

    Attributes
    ----------
    slots, tiles, places : list of Slot
        All decisions; those of tiles, and of where stages are computed, that can be chosen.

    Raises
    ------
    LogError
        It decides something that is not known here, such as lengths that do not divide.
    """

    def __init__(self, trace: Sequence[Any], *, threads: int = 1024) -> None:
        self.instructions, decisions = trace
        told = dict(decisions)
        self.slots: list[Slot] = []
        self._at: dict[str, int] = {}  # a length's place in the row, by the name of its variable
        start = 0
        for number, instruction in enumerate(self.instructions):
            if instruction[0].startswith("Sample"):
                slot = _slot(number, instruction, told.get(number), start)
                self.slots.append(slot)
                if slot.innermost:
                    self._at |= {name: start + k for k, name in enumerate(instruction[3])}
                start += slot.parts
        self.width = start
        self._sort()
        self._threads, self._vthreads = self._bound()
        low, high = self._annotated(_LOW, 1), self._annotated(_HIGH, threads)
        self.limits = low, min(high, threads)

    def _sort(self) -> None:
        self.tiles = [slot for slot in self.slots if slot.innermost and slot.extent > 1]
        self._choices = [slot for slot in self.slots if not slot.innermost and slot.extent > 1]
        self.places = [slot for slot in self._choices if slot.place]
        tiled = len(self.tiles) / max(1, len(self.tiles) + len(self.places))
        self._tiles = min(TILES, tiled) if self._choices else 1.0  # of the changes, as many as there are

    def settle(self, rows: NDArray[np.int64]) -> None:
        """Compute stages from now on only where rows [N, width] do as TVM decides them in the end."""
        for k, slot in enumerate(self.slots):
            if slot.place and len(rows):
                found = np.unique(rows[:, slot.start]).tolist()
                even = (1 / len(found),) * len(found)
                self.slots[k] = replace(slot, extent=len(found), choices=tuple(found), chances=even)
        self._sort()

    def _bound(self) -> tuple[list[int], list[int]]:
        """Places of the lengths that are bound to threads, and to virtual ones."""
        made: dict[str, list[str]] = {}  # the lengths of which a loop is made, by its name
        found: dict[str, list[int]] = {"threadIdx": [], "vthread": []}
        for kind, inputs, attributes, outputs in self.instructions:
            if kind == "Split":
                made |= {loop: [str(length)] for loop, length in zip(outputs, inputs[1:])}
            elif kind == "Fuse":
                made[outputs[0]] = [name for loop in inputs for name in made.get(loop, ())]
            elif kind == "Bind":
                tag = str(attributes[0]).partition(".")[0]
                names = made.get(inputs[0], ())
                found.get(tag, []).extend(self._at[name] for name in names if name in self._at)
        return found["threadIdx"], found["vthread"]

    def _annotated(self, key: str, otherwise: int) -> int:
        values = [row[1][1] for row in self.instructions if row[0] == "Annotate" and row[2][0] == key]
        return int(values[0]) if values and isinstance(values[0], (int, float)) else otherwise

    def fits(self, row: Row) -> bool:
        """Whether a block may have so many threads."""
        if not self._threads:
            return True
        low, high = self.limits
        threads = math.prod(row[k] for k in self._threads)
        return low <= threads <= high and math.prod(row[k] for k in self._vthreads) <= VTHREADS

    def random(self, count: int, rng: np.random.Generator) -> list[Row]:
        """Up to `count` different rows that fit; fewer where the space has few of them."""
        found: dict[Row, None] = {}
        empty = 0  # draws in a row that had no new one
        while len(found) < count and empty < EMPTY:
            before = len(found)
            rows = self._random(DRAWN if self._threads else max(LEAST, 2 * count), rng)
            for row in rows[self._fit(rows)].tolist():
                found[tuple(row)] = None
                if len(found) == count:
                    break
            empty = 0 if len(found) > before else empty + 1
        return list(found)

    def _random(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        rows = np.ones((count, self.width), dtype=np.int64)
        every = np.arange(count)
        for slot in self.slots:
            if not slot.innermost:
                rows[:, slot.start] = rng.choice(slot.choices, size=count, p=slot.chances)
                continue
            for prime in primes(slot.extent):
                rows[every, slot.start + rng.integers(slot.parts, size=count)] *= prime
        return rows

    def _fit(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        fine = np.ones(len(rows), dtype=bool)
        for slot in self.tiles:
            fine &= rows[:, slot.start + slot.parts - 1] <= slot.innermost
        if self._threads:
            threads = rows[:, self._threads].prod(axis=1)
            fine &= (threads >= self.limits[0]) & (threads <= self.limits[1])
            fine &= rows[:, self._vthreads].prod(axis=1) <= VTHREADS
        return fine

    def mutate(self, row: Row, rng: Random) -> Row | None:
        """Another row that fits, with one decision changed; None where that was not found."""
        for _ in range(TRIES):
            tile = self.tiles and (not self._choices or rng.random() < self._tiles)
            found = self._moved(row, rng) if tile else self._chosen(row, rng)
            if found is not None and found != row and self.fits(found):
                return found
        return None

    def _moved(self, row: Row, rng: Random) -> Row | None:
        """A factor of one of a tile's lengths moved to another."""
        slot = rng.choice(self.tiles)
        lengths = move_factor(row[slot.start : slot.start + slot.parts], slot.innermost, rng)
        return None if lengths is None else (*row[: slot.start], *lengths, *row[slot.start + slot.parts :])

    def _chosen(self, row: Row, rng: Random) -> Row | None:
        if not self._choices:
            return None
        slot = rng.choice(self._choices)
        return (*row[: slot.start], rng.choice(slot.choices), *row[slot.start + 1 :])

    def register_tile(self, row: Row) -> Tile | None:
        """What a schedule of a processor keeps in registers, as `wmsched.search.register_tiles` has it of
        steps."""
        levels = max((slot.parts for slot in self.slots if slot.innermost), default=0)
        if levels < LEVELS:
            return None
        ends = [(slot, slot.start + slot.parts) for slot in self.slots if slot.innermost]
        tile = tuple(math.prod(row[end - 2 : end]) for slot, end in ends if slot.parts == levels)
        return tile, math.prod(row[end - 1] for slot, end in ends if 1 < slot.parts < levels)

    def decisions(self, row: Row) -> list[tuple[int, Any]]:
        """(number of the instruction, decision) of a row, as a trace has them."""
        parts = [(slot, row[slot.start : slot.start + slot.parts]) for slot in self.slots]
        return [(slot.instruction, list(part) if slot.innermost else part[0]) for slot, part in parts]

    def row_of(self, trace: Sequence[Any]) -> Row | None:
        """The row of a trace's JSON, postprocessed or not; None where it is of another space."""
        instructions, decisions = trace
        if instructions[: len(self.instructions)] != self.instructions:
            return None
        rest = instructions[len(self.instructions) :]
        if rest and rest[0][0] != "EnterPostproc":
            return None
        told = dict(decisions)
        row: list[Any] = []
        for slot in self.slots:
            value = told.get(slot.instruction)
            row += value if isinstance(value, list) else [value]
        return tuple(row) if len(row) == self.width and all(type(n) is int for n in row) else None


def _slot(number: int, instruction: Sequence[Any], decision: Any, start: int) -> Slot:
    kind, _, attributes, outputs = instruction
    if kind == "SamplePerfectTile" and isinstance(decision, (list, tuple)):
        if len(decision) == len(outputs) and all(type(n) is int and n > 0 for n in decision):
            return Slot(number, start, len(outputs), math.prod(decision), int(attributes[1]))
    elif kind == "SampleCategorical" and len(attributes[0]) == len(attributes[1]) > 0:
        chances = np.maximum(np.asarray(attributes[1], dtype=np.float64), 0.0)
        if chances.sum() > 0:
            told = tuple((chances / chances.sum()).tolist())
            return Slot(number, start, 1, len(chances), choices=tuple(range(len(chances))), chances=told)
    elif kind == "SampleComputeLocation":
        places = tuple(range(-2, DEPTH))
        chances = 1 / np.arange(1, len(places) + 1)  # what is too far in is moved out: no need of many such
        told = tuple((chances / chances.sum()).tolist())
        return Slot(number, start, 1, len(places), choices=places, chances=told, place=True)
    raise LogError(f"a decision that is not drawn here: {kind} with {str(decision)[:60]}")


def primes(number: int) -> list[int]:
    """The prime factors, each as often as it divides."""
    found, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return [*found, number] if number > 1 else found
