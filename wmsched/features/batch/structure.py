"""Structure of candidates: the loop nest with symbolic extents.

A search proposes a thousand candidates that differ only in tile sizes and unrolling, and otherwise are some
tens of schedules. `outline` takes the numbers out of a candidate. `follow` runs the rest through the ordinary
`LoopNest`, with a `SymbolicExtent` for every number. Such an extent is a product of atoms: the numbers taken
out, and the rounded-up quotients that splits make of them. `substitute` puts the numbers of all candidates
back at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from wmsched.schedules.loop_nest import LoopNest
from wmsched.schedules.types import Stage

_UNROLL = "auto_unroll_max_step$"

Steps = Sequence[Sequence[Any]]


class Quotients:
    """The quotients of one structure, in an order in which they can be computed.

    Attributes
    ----------
    quotients : list of (total, rest)
        Atom ``-1 - k`` is ceil(total / rest) of entry k.
    depth : int
        Length of the longest chain of quotients of quotients.
    """

    def __init__(self) -> None:
        self.quotients: list[tuple[SymbolicExtent, SymbolicExtent]] = []
        self.depth = 0
        self._known: dict[Any, SymbolicExtent] = {}
        self._level: dict[int, int] = {}

    def ceil(self, total: SymbolicExtent | int, rest: SymbolicExtent | int) -> SymbolicExtent:
        """Return ``total / rest``, rounded up."""
        top = total if isinstance(total, SymbolicExtent) else SymbolicExtent.of(total, self, total, ())
        below = rest if isinstance(rest, SymbolicExtent) else SymbolicExtent.of(rest, self, rest, ())
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
            value = -(-int(top) // int(below))
            found = self._known[key] = SymbolicExtent.of(value, self, 1, (atom,))
        return found


class SymbolicExtent(int):
    """A positive extent: one candidate's value, and for all candidates a constant times atoms.

    Atom ``1 + k`` is the k-th number taken out of the steps; a negative atom is a quotient on the tape. Only
    the operations of `LoopNest` are defined.
    """

    tape: Quotients
    factor: int
    atoms: tuple[int, ...]

    @classmethod
    def of(cls, value: int, tape: Quotients, factor: int, atoms: tuple[int, ...]) -> SymbolicExtent:
        """Return the extent `value`, which is `factor` times the atoms."""
        size = cls(value)
        size.tape, size.factor, size.atoms = tape, factor, atoms
        return size

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, SymbolicExtent):
            both = self.atoms + other.atoms
            return SymbolicExtent.of(int(self) * int(other), self.tape, self.factor * other.factor, both)
        if isinstance(other, int):
            return SymbolicExtent.of(int(self) * other, self.tape, self.factor * other, self.atoms)
        return NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return _Negated(self)

    def __rfloordiv__(self, negated: Any) -> Any:
        return _Negated(self.tape.ceil(-negated, self))


class _Negated:
    """Intermediate value of ``-(-total // rest)``."""

    __slots__ = ("size",)

    def __init__(self, size: SymbolicExtent) -> None:
        self.size = size

    def __floordiv__(self, rest: SymbolicExtent | int) -> _Negated:
        return _Negated(self.size.tape.ceil(self.size, rest))

    def __neg__(self) -> SymbolicExtent:
        return self.size


def outline(steps: Steps, lengths: list[Any], unrolls: list[int]) -> bytes:
    """Return a candidate's structure as a key, and append its numbers to the lists.

    Parameters
    ----------
    lengths : list
        Receives the lengths of all splits.
    unrolls : list
        Receives the numbers of the unroll pragmas.

    Raises
    ------
    TypeError, ValueError, LookupError
        The steps are not AutoScheduler's.
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


def follow(steps: Steps, stages: Sequence[Stage]) -> tuple[LoopNest, Quotients] | None:
    """Return the final nest of a structure with symbolic extents, and its quotients.

    Returns
    -------
    nest, tape
        A stage's ``unroll`` is a `SymbolicExtent` where a pragma set it; its atom is the pragma's number.
    None
        The steps name stages that the workload lacks.
    """
    nest, tape = LoopNest(stages), Quotients()
    count = unrolls = 0
    for step in steps:
        if step[0] == "SP":
            sizes = [SymbolicExtent.of(n, tape, 1, (count + k + 1,)) for k, n in enumerate(step[4])]
            count += len(sizes)
            nest.apply([*step[:4], sizes, step[5]])
        else:
            nest.apply(step)
        if step[0] == "PR" and step[3].startswith(_UNROLL):
            unrolls += 1
            stage = nest.stage(step[1])
            stage.unroll = SymbolicExtent.of(stage.unroll, tape, 1, (unrolls,))
    for state in nest.stages:
        if state.source is None and state.role == "compute":
            return None  # the steps name a stage that the workload lacks
        if any(loop.extent < 1 for loop in state.loops):
            return None
    return nest, tape
