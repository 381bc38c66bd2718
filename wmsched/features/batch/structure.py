"""What candidates of one structure have in common: the loop nest with its lengths left open.

A search proposes a thousand candidates that differ in tile sizes and unrolling and, these aside, are some
tens of schedules. `outline` takes the numbers out of a candidate; `follow` runs what is left through the very
`LoopNest` that follows single candidates, with a `SymbolicExtent` in place of every number: a product of
atoms, which are the numbers taken out and the rounded-up quotients that splits make of them. `phi_batch`
puts the numbers back, for all candidates at once.
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
    """The quotients of one structure, in the order in which they can be computed.

    Attributes
    ----------
    quotients : list of (total, rest)
        Atom ``-1 - k`` is the rounded-up quotient of the two of place k.
    depth : int
        How many of them lie on top of each other, at most.
    """

    def __init__(self) -> None:
        self.quotients: list[tuple[SymbolicExtent, SymbolicExtent]] = []
        self.depth = 0
        self._known: dict[Any, SymbolicExtent] = {}
        self._level: dict[int, int] = {}

    def ceil(self, total: SymbolicExtent | int, rest: SymbolicExtent | int) -> SymbolicExtent:
        """``total / rest``, rounded up."""
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
    """An extent above zero as one candidate has it, and as every other has it: a constant times atoms.

    Atom ``1 + k`` is the k-th number taken out of the steps; a negative one is a quotient on the tape. Only
    what `LoopNest` does to extents is defined.
    """

    tape: Quotients
    factor: int
    atoms: tuple[int, ...]

    @classmethod
    def of(cls, value: int, tape: Quotients, factor: int, atoms: tuple[int, ...]) -> SymbolicExtent:
        """The extent `value`, which is `factor` times the atoms."""
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
    """What ``-(-total // rest)`` goes through."""

    __slots__ = ("size",)

    def __init__(self, size: SymbolicExtent) -> None:
        self.size = size

    def __floordiv__(self, rest: SymbolicExtent | int) -> _Negated:
        return _Negated(self.size.tape.ceil(self.size, rest))

    def __neg__(self) -> SymbolicExtent:
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


def follow(steps: Steps, stages: Sequence[Stage]) -> tuple[LoopNest, Quotients] | None:
    """The nest that a candidate's structure leaves behind, what its numbers make of it a `SymbolicExtent`.

    Returns
    -------
    nest, tape
        A stage's ``unroll`` is a `SymbolicExtent` where a pragma set it: its atom is which.
    None
        The workload lacks what the steps name.
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
            return None  # a stage that the steps name and the workload lacks
        if any(loop.extent < 1 for loop in state.loops):
            return None
    return nest, tape
