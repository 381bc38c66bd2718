"""Loops of a TensorIR block: which are spatial, which are reduced, and how long they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tvm.tirx import IterVar
from tvm.tirx.analysis import undefined_vars

__all__ = ["BlockLoops", "numbers"]


class BlockLoops(NamedTuple):
    """Block whose loops are its variables, one each, in their order.

    Parameters
    ----------
    stated : SBlock
    spatial, reduced : list of int
        Indices of its spatial and reduction loops.
    extents : list of int
        Extents of all loops.
    names : list of Var
        The block's variables, one a loop.
    """

    stated: Any
    spatial: list[int]
    reduced: list[int]
    extents: list[int]
    names: list[Any]

    @staticmethod
    def of(schedule: Any, block: Any) -> BlockLoops | None:
        """Return a block's loops; None if it reduces nothing, is scheduled or has symbolic extents."""
        schedule = schedule.copy()  # keeps these queries out of the trace
        stated = schedule.get(block)
        loops = [schedule.get(loop) for loop in schedule.get_loops(block)]
        variables = list(stated.iter_vars)
        kinds = [int(variable.iter_type) for variable in variables]
        spatial = [k for k, kind in enumerate(kinds) if kind == IterVar.DataPar]
        reduced = [k for k, kind in enumerate(kinds) if kind == IterVar.CommReduce]
        extents = numbers(loop.extent for loop in loops)
        same = extents is not None and extents == numbers(variable.dom.extent for variable in variables)
        if not (extents and same and spatial and reduced and len(spatial) + len(reduced) == len(kinds)):
            return None
        return BlockLoops(stated, spatial, reduced, extents, [variable.var for variable in variables])

    def is_read_again(self, region: Sequence[Any]) -> bool:
        """Whether a region of an input is the same for several of the block's outputs."""
        used = [variable for index in region for variable in undefined_vars(index.min)]
        return any(
            self.extents[k] > 1 and not any(self.names[k].same_as(one) for one in used) for k in self.spatial
        )


def numbers(extents: Iterable[Any]) -> list[int] | None:
    """Return extents as integers; None if one is symbolic."""
    found = [getattr(extent, "value", None) for extent in extents]
    known = [int(n) for n in found if n is not None]
    return known if len(known) == len(found) else None
