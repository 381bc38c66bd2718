"""Design spaces of MetaSchedule as rows of numbers, sampled and mutated without TVM.

A space is a trace whose sampling instructions have open decisions. A row holds the decisions, one
instruction after the other: a tile's factors, a category's index, a compute location. On a GPU most rows
exceed the threads of a block, which the row alone shows. Valid compute locations depend on the tiles, and
TVM moves an invalid one outwards, so several rows can mean one schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import LogError
from wmsched.schedules.grammar import Instruction
from wmsched.search.register_tiles import Tile
from wmsched.search.tiles import move_factor

Row = tuple[int, ...]

MAX_VTHREADS = 8  # of a block: VerifyGPUCode's max_vthread
TILE_MUTATION_SHARE = 0.85  # of mutations; the others change choices (MetaSchedule: 0.9, unrolling 0.08)
MUTATION_ATTEMPTS = 6  # before `mutate` gives up
GPU_SAMPLE_ROWS = 1 << 14  # in one sample; a few in a hundred are within a block's limits
MIN_SAMPLE_ROWS = 256  # in one sample, if all rows fit
CPU_TILE_LEVELS = 4  # of spatial loops; the inner two stay in registers
MAX_NEST_DEPTH = 32  # loops of a consumer's nest, before their number is known
MAX_EMPTY_SAMPLES = 3  # samples in a row without a new row, after which the space counts as exhausted
WARP = 32  # threads for each one of a row where a trace says that whole warps execute its block
_WARPS = "warp_execution"
_LOW, _HIGH = "meta_schedule.thread_extent_low_inclusive", "meta_schedule.thread_extent_high_inclusive"


@dataclass(frozen=True)
class Slot:
    """One decision's columns in a row.

    Parameters
    ----------
    instruction : int
        Index of the sampling instruction.
    start, parts : int
        First column and number of columns.
    extent : int
        Product of a tile's factors; otherwise the number of choices.
    innermost : int
        Largest last factor of a tile; otherwise 0.
    choices : tuple of int
        Values that this decision can take; empty for a tile. SampleCategorical: the category index.
        SampleComputeLocation: a loop index in the first consumer's nest, -1 for root, -2 for inline.
    chances : tuple of float
        Probabilities of the choices.
    place : bool
        Whether this is a compute location.
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
    """Sampling and mutation of the rows of one design space.

    Parameters
    ----------
    trace : [instructions, decisions]
        ``trace.as_json()`` of the space, without postprocessors.
    threads : int
        Maximum in a block.
    allows : callable (row) -> bool, optional
        Whether a row can be a program, as far as its numbers say it; by default all can.

    Attributes
    ----------
    slots, tiles, places : list of Slot
        All decisions; tiles and compute locations with more than one value.

    Raises
    ------
    LogError
        The trace has an unknown decision, such as factors that do not divide.

    Examples
    --------
    >>> space = DecisionSpace(trace)  # doctest: +SKIP
    >>> rows = space.random(64, np.random.default_rng(0))  # doctest: +SKIP
    >>> space.decisions(rows[0])  # [(instruction, decision), ...]  # doctest: +SKIP
    """

    def __init__(
        self,
        trace: Sequence[Any],
        *,
        threads: int = 1024,
        allows: Callable[[DecisionSpace, Row], bool] | None = None,
    ) -> None:
        self.instructions, decisions = trace
        self.allows = allows
        told = dict(decisions)
        self.slots: list[Slot] = []
        self._at: dict[str, int] = {}  # a factor's column, by the name of its variable
        start = 0
        for number, fields in enumerate(self.instructions):
            instruction = Instruction(*fields)
            if instruction.kind.startswith("Sample"):
                slot = _slot(number, instruction, told.get(number), start)
                self.slots.append(slot)
                if slot.innermost:
                    self._at |= {name: start + k for k, name in enumerate(instruction.outputs)}
                start += slot.parts
        self.width = start
        self._sort()
        self._threads, self._vthreads = self._bound()
        low, high = self._annotated(_LOW, 1), min(self._annotated(_HIGH, threads), threads)
        each = WARP if self._annotated(_WARPS, 0) else 1
        self.limits = -(-low // each), high // each

    def _sort(self) -> None:
        self.tiles = [slot for slot in self.slots if slot.innermost and slot.extent > 1]
        self._choices = [slot for slot in self.slots if not slot.innermost and slot.extent > 1]
        self.places = [slot for slot in self._choices if slot.place]
        tiled = len(self.tiles) / max(1, len(self.tiles) + len(self.places))
        self._tiles = min(TILE_MUTATION_SHARE, tiled) if self._choices else 1.0  # share of mutations

    def settle(self, rows: NDArray[np.int64]) -> None:
        """Restrict compute locations to the values in `rows` [N, width], which TVM has canonicalised."""
        for k, slot in enumerate(self.slots):
            if slot.place and len(rows):
                found = np.unique(rows[:, slot.start]).tolist()
                even = (1 / len(found),) * len(found)
                self.slots[k] = replace(slot, extent=len(found), choices=tuple(found), chances=even)
        self._sort()

    def _bound(self) -> tuple[list[int], list[int]]:
        """Return the columns of factors bound to threads, and of those bound to virtual threads."""
        made: dict[str, list[str]] = {}  # factors of a loop, by its name
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
        marks = (Instruction(*fields) for fields in self.instructions)
        values = [mark.inputs[1] for mark in marks if mark.kind == "Annotate" and mark.attributes[0] == key]
        return int(values[0]) if values and isinstance(values[0], (int, float)) else otherwise

    def fits(self, row: Row) -> bool:
        """Return whether the row's threads are within a block's limits, and `allows` takes it."""
        if self.allows is not None and not self.allows(self, row):
            return False
        if not self._threads:
            return True
        low, high = self.limits
        threads = math.prod(row[k] for k in self._threads)
        return low <= threads <= high and math.prod(row[k] for k in self._vthreads) <= MAX_VTHREADS

    def random(self, count: int, rng: np.random.Generator) -> list[Row]:
        """Return up to `count` different rows that fit; fewer if the space is small."""
        found: dict[Row, None] = {}
        empty = 0  # samples in a row without a new row
        while len(found) < count and empty < MAX_EMPTY_SAMPLES:
            before = len(found)
            rows = self._random(GPU_SAMPLE_ROWS if self._threads else max(MIN_SAMPLE_ROWS, 2 * count), rng)
            for row in map(tuple, rows[self._fit(rows)].tolist()):
                if self.allows is None or self.allows(self, row):
                    found[row] = None
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
            fine &= rows[:, self._vthreads].prod(axis=1) <= MAX_VTHREADS
        return fine

    def mutate(self, row: Row, rng: Random) -> Row | None:
        """Return a row that fits and differs in one decision; None if none was found."""
        for _ in range(MUTATION_ATTEMPTS):
            tile = self.tiles and (not self._choices or rng.random() < self._tiles)
            found = self._moved(row, rng) if tile else self._chosen(row, rng)
            if found is not None and found != row and self.fits(found):
                return found
        return None

    def _moved(self, row: Row, rng: Random) -> Row | None:
        """Return the row with a prime factor moved between two factors of a tile."""
        slot = rng.choice(self.tiles)
        lengths = move_factor(row[slot.start : slot.start + slot.parts], slot.innermost, rng)
        return None if lengths is None else (*row[: slot.start], *lengths, *row[slot.start + slot.parts :])

    def _chosen(self, row: Row, rng: Random) -> Row | None:
        if not self._choices:
            return None
        slot = rng.choice(self._choices)
        return (*row[: slot.start], rng.choice(slot.choices), *row[slot.start + 1 :])

    def register_tile(self, row: Row) -> Tile | None:
        """Return the register tile of a CPU schedule, in the form of `register_tiles.register_tile`."""
        levels = max((slot.parts for slot in self.slots if slot.innermost), default=0)
        if levels < CPU_TILE_LEVELS:
            return None
        ends = [(slot, slot.start + slot.parts) for slot in self.slots if slot.innermost]
        tile = tuple(math.prod(row[end - 2 : end]) for slot, end in ends if slot.parts == levels)
        return tile, math.prod(row[end - 1] for slot, end in ends if 1 < slot.parts < levels)

    def decisions(self, row: Row) -> list[tuple[int, Any]]:
        """Return a row as (instruction index, decision) pairs, in a trace's form."""
        parts = [(slot, row[slot.start : slot.start + slot.parts]) for slot in self.slots]
        return [(slot.instruction, list(part) if slot.innermost else part[0]) for slot, part in parts]

    def row_of(self, trace: Sequence[Any]) -> Row | None:
        """Return the row of a trace's JSON, postprocessed or not; None if it is of another space."""
        instructions, decisions = trace
        if instructions[: len(self.instructions)] != self.instructions:
            return None
        rest = instructions[len(self.instructions) :]
        if rest and Instruction(*rest[0]).kind != "EnterPostproc":
            return None
        told = dict(decisions)
        row: list[Any] = []
        for slot in self.slots:
            value = told.get(slot.instruction)
            row += value if isinstance(value, list) else [value]
        return tuple(row) if len(row) == self.width and all(type(n) is int for n in row) else None


def _slot(number: int, instruction: Instruction, decision: Any, start: int) -> Slot:
    kind, _, attributes, outputs, _ = instruction
    if kind == "SamplePerfectTile" and isinstance(decision, (list, tuple)):
        if len(decision) == len(outputs) and all(type(n) is int and n > 0 for n in decision):
            return Slot(number, start, len(outputs), math.prod(decision), int(attributes[1]))
    elif kind == "SampleCategorical" and len(attributes[0]) == len(attributes[1]) > 0:
        chances = np.maximum(np.asarray(attributes[1], dtype=np.float64), 0.0)
        if chances.sum() > 0:
            told = tuple((chances / chances.sum()).tolist())
            return Slot(number, start, 1, len(chances), choices=tuple(range(len(chances))), chances=told)
    elif kind == "SampleComputeLocation":
        places = tuple(range(-2, MAX_NEST_DEPTH))
        chances = 1 / np.arange(
            1, len(places) + 1
        )  # TVM moves locations too far in outwards, so they are rare
        told = tuple((chances / chances.sum()).tolist())
        return Slot(number, start, 1, len(places), choices=places, chances=told, place=True)
    raise LogError(f"a decision that is not drawn here: {kind} with {str(decision)[:60]}")


def primes(number: int) -> list[int]:
    """Return the prime factors with multiplicity."""
    found, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return [*found, number] if number > 1 else found
