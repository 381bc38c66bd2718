"""What candidates of one structure have in common: the loop nest with its lengths left open.

A search proposes a thousand candidates that differ in tile sizes and unrolling and, these aside, are some
tens of schedules. `outline` takes the numbers out of a candidate; `follow` runs what is left through the very
`LoopNest` that follows single candidates, with a `Size` in place of every number: a product of atoms, which
are the numbers taken out and the rounded-up quotients that splits make of them. `phi_batch` puts the numbers
back, for all candidates at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from wmsched.loops import LoopNest
from wmsched.types import Stage

_UNROLL = "auto_unroll_max_step$"

Steps = Sequence[Sequence[Any]]


class Tape:
    """The quotients of one structure, in the order in which they can be computed.

    Attributes
    ----------
    quotients : list of (total, rest)
        Atom ``-1 - k`` is the rounded-up quotient of the two of place k.
    depth : int
        How many of them lie on top of each other, at most.
    """

    def __init__(self) -> None:
        self.quotients: list[tuple[Size, Size]] = []
        self.depth = 0
        self._known: dict[Any, Size] = {}
        self._level: dict[int, int] = {}

    def ceil(self, total: Size | int, rest: Size | int) -> Size:
        """``total / rest``, rounded up."""
        top = total if isinstance(total, Size) else Size(self, total, ())
        below = rest if isinstance(rest, Size) else Size(self, rest, ())
        if below.factor == 1 and not below.atoms:
            return top
        key = (top.factor, top.atoms, below.factor, tuple(sorted(below.atoms)))
        found = self._known.get(key)
        if found is None:
            self.quotients.append((top, below))
            atom = -len(self.quotients)
            level = 1 + max((self._level.get(a, 0) for a in (*top.atoms, *below.atoms)), default=0)
            self._level[atom] = level
            self.depth = max(self.depth, level)
            found = self._known[key] = Size(self, 1, (atom,))
        return found


class Size:
    """An extent above zero that is not known yet: a constant times atoms.

    Atom ``1 + k`` is the k-th number taken out of the steps; a negative one is a quotient on the tape. Only
    what `LoopNest` does to extents is defined.
    """

    __slots__ = ("atoms", "factor", "tape")

    def __init__(self, tape: Tape, factor: int, atoms: tuple[int, ...]) -> None:
        self.tape, self.factor, self.atoms = tape, factor, atoms

    def __mul__(self, other: Size | int) -> Size:
        if isinstance(other, Size):
            return Size(self.tape, self.factor * other.factor, self.atoms + other.atoms)
        return Size(self.tape, self.factor * other, self.atoms)

    __rmul__ = __mul__

    def __neg__(self) -> _Negated:
        return _Negated(self)

    def __rfloordiv__(self, negated: int) -> _Negated:
        return _Negated(self.tape.ceil(-negated, self))

    def __str__(self) -> str:
        return "n"


class _Negated:
    """What ``-(-total // rest)`` goes through."""

    __slots__ = ("size",)

    def __init__(self, size: Size) -> None:
        self.size = size

    def __floordiv__(self, rest: Size | int) -> _Negated:
        return _Negated(self.size.tape.ceil(self.size, rest))

    def __neg__(self) -> Size:
        return self.size


def outline(steps: Steps, lengths: list[Any], unrolls: list[int]) -> bytes:
    """A candidate's structure as a key, its numbers appended to the lists.

    Parameters
    ----------
    lengths : receives the lengths of all splits
    unrolls : receives the numbers of the unroll pragmas

    Raises
    ------
    TypeError, ValueError, LookupError
        The steps are not AutoScheduler's, as the codec reads them.
    """
    shape: list[Any] = []
    for step in steps:
        code = step[0]
        if code == "SP":
            _, stage, loop, extent, given, inner = step
            lengths += given
            shape.append((stage, loop, extent, len(given), inner))
        elif code == "PR" and step[3].startswith(_UNROLL):
            value = step[3][len(_UNROLL) :]
            unrolls.append(int(value) if value.isdecimal() and len(value) < 8 else 0)
            shape.append(("PR", step[1], step[2], 0))
        else:
            shape.append(step)
    return orjson.dumps(shape)


def follow(key: bytes, stages: Sequence[Stage]) -> tuple[LoopNest, Tape] | None:
    """The nest that a structure leaves behind, its extents integers or `Size`; None where that is not known.

    A stage's ``unroll`` is ``-1 - k`` where the k-th unroll pragma set it.
    """
    nest, tape = LoopNest(stages), Tape()
    count = unrolls = 0
    for step in orjson.loads(key):
        if type(step[0]) is int:
            stage, loop, extent, given, inner = step
            sizes = [Size(tape, 1, (count + k + 1,)) for k in range(given)]
            count += given
            nest.apply(["SP", stage, loop, extent, sizes, inner])
        elif step[0] == "PR" and step[3] == 0:
            unrolls += 1
            nest.stage(step[1]).unroll = -unrolls
            nest.apply(["PR", step[1], step[2], ""])
        else:
            nest.apply(step)
    for state in nest.stages:
        if state.source is None and state.role == "compute":
            return None  # a stage that the steps name and the workload lacks
        if any(not isinstance(loop.extent, Size) and loop.extent < 1 for loop in state.loops):
            return None
    return nest, tape
