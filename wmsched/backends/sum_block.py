"""Blocks of TensorIR that add up, as a schedule finds them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm.tirx import IterVar, Var
from tvm.tirx.analysis import undefined_vars


class Input(NamedTuple):
    """What a sum reads: its dimensions, its elements, and the last index where that is a variable."""

    dimensions: int
    elements: int
    last: Any


@dataclass(frozen=True)
class Sum:
    """A block that adds up, and reads some input for several elements of its output.

    Parameters
    ----------
    spatial, reduced : list of int
        Places of its loops.
    extents : list of int
        Of all loops.
    longest : int
        The place of the reduction loop that has most terms.
    inputs : list of Input
    names : list of Var
        The block's variables, one for each loop.
    """

    spatial: list[int]
    reduced: list[int]
    extents: list[int]
    longest: int
    inputs: list[Input]
    names: list[Any]

    @property
    def elements(self) -> int:
        return math.prod(self.extents[k] for k in self.spatial)

    @property
    def terms(self) -> int:
        return math.prod(self.extents[k] for k in self.reduced)

    @staticmethod
    def of(schedule: Any, block: Any) -> Sum | None:
        """None for what is no such block, or is scheduled already."""
        schedule = schedule.copy()  # whose trace is not to tell of these questions
        stated = schedule.get(block)
        loops = [schedule.get(loop) for loop in schedule.get_loops(block)]
        variables = list(stated.iter_vars)
        kinds = [int(variable.iter_type) for variable in variables]
        spatial = [k for k, kind in enumerate(kinds) if kind == IterVar.DataPar]
        reduced = [k for k, kind in enumerate(kinds) if kind == IterVar.CommReduce]
        extents = numbers(loop.extent for loop in loops)
        same = extents is not None and extents == numbers(variable.dom.extent for variable in variables)
        fine = same and len(spatial) + len(reduced) == len(kinds)
        if not (
            extents and fine and reduced and spatial and len(stated.writes) == 1 and len(stated.reads) >= 2
        ):
            return None
        inputs, again = [], False
        for region in stated.reads:
            if region.source.same_as(stated.writes[0].source):
                continue
            shape = numbers(region.source.ty.shape)
            if shape is None:
                return None
            used = [var for index in region.region for var in undefined_vars(index.min)]
            again |= any(extents[k] > 1 and not _holds(used, variables[k].var) for k in spatial)
            last = region.region[-1].min if len(region.region) else None
            inputs.append(Input(len(shape), math.prod(shape), last if isinstance(last, Var) else None))
        if not again:  # nothing is read for several elements: MetaSchedule's rule for such sums is there
            return None
        longest = max((extents[k], -k) for k in reduced)
        return Sum(spatial, reduced, extents, -longest[1], inputs, [variable.var for variable in variables])


def _holds(variables: Sequence[Any], one: Any) -> bool:
    return any(each.same_as(one) for each in variables)


def numbers(extents: Iterable[Any]) -> list[int] | None:
    """None where one is not known before it runs."""
    found = [getattr(extent, "value", None) for extent in extents]
    known = [int(n) for n in found if n is not None]
    return known if len(known) == len(found) else None
