"""Regions of a graph: a convolution with the elementwise operators after it, as a function of its own.

The options of a region are measured without the rest of the model. Regions that compute the same in the same
shapes are one class.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.utils import copy_with_new_vars

from wmsched.relax.choices.configuration import (
    ATTENTION,
    CONCAT,
    CONVOLUTION,
    Site,
    rewritten,
    simplified,
    sites,
)
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.rewrite import Rewriter
from wmsched.relax.passes.wide_fusion import BINARY, INLINED, UNARY, shape_of

MAX_VARIANTS = 12  # of one region: with more, its sites are left as they are
ELEMENTWISE = (UNARY | BINARY | INLINED) - {
    f"relax.{name}" for name in ("permute_dims", "reshape", "strided_slice", "expand_dims", "squeeze")
}


@dataclass(frozen=True)
class Region:
    """A part of a graph.

    Parameters
    ----------
    sites : tuple of int
        Which of the graph's sites are in it.
    function : relax.Function
    """

    sites: tuple[int, ...]
    function: Any

    @property
    def key(self) -> str:
        """Return what regions of one class share: operators and shapes, not weights."""
        return f"{tvm_ffi.structural_hash(self.function, True, True) & (1 << 64) - 1:016x}"


@dataclass(frozen=True)
class Variant:
    """A region with one option for each of its sites: a function of a module, by name."""

    region: str
    choices: tuple[int, ...]
    name: str


def regions(module: Any, found: Sequence[Site]) -> list[Region]:
    """Return the regions of a `simplified` module; sites in none, as concatenations and attention, stay."""
    graph, taken, parts = Rewriter(module), set[int](), []
    for k, site in enumerate(found):
        if site.kind in (ATTENTION, CONCAT) or k in taken:
            continue
        begin = site.place if site.kind == CONVOLUTION else _beginning(graph, site.place)
        places = _grown(graph, begin)
        inside = tuple(j for j, other in enumerate(found) if other.place in places and j not in taken)
        taken |= set(inside)
        parts.append(Region(inside, _function(graph, places)))
    return parts


def _beginning(graph: Rewriter, place: int) -> int:
    """Return the place of the product that an elementwise operator follows."""
    position = {variable: k for k, (variable, _) in enumerate(graph.bindings)}
    while graph.operator(graph.bindings[place][1]) in ELEMENTWISE:
        shape = shape_of(graph.bindings[place][1])
        before = [one for one in graph.bindings[place][1].args if one in position]
        place = next(position[one] for one in before if shape_of(one) == shape)
    return place


def _grown(graph: Rewriter, begin: int) -> list[int]:
    """Return the places of a product and of the elementwise operators of its shape that follow it."""
    places, inside = [begin], {graph.bindings[begin][0]}
    shape = shape_of(graph.bindings[begin][1])
    for place in range(begin + 1, len(graph.bindings)):
        variable, value = graph.bindings[place]
        own = [one for one in getattr(value, "args", ()) if isinstance(one, relax.Var) and one in inside]
        if own and graph.operator(value) in ELEMENTWISE and shape_of(value) == shape:
            places.append(place)
            inside.add(variable)
    return places


def _function(graph: Rewriter, places: Sequence[int]) -> Any:
    """Return the region as a function of what it reads, with what others read of it as its results."""
    inside = {graph.bindings[place][0] for place in places}
    given: dict[Any, Any] = {}
    new: dict[Any, Any] = {}
    for place in places:
        for one in graph.bindings[place][1].args:
            if isinstance(one, relax.Var) and one not in inside and one not in given:
                given[one] = relax.Var(f"x{len(given)}", one.ty)
    new |= given
    builder = relax.BlockBuilder()
    with builder.function("region", list(given.values())):
        with builder.dataflow():
            for place in places:
                variable, call = graph.bindings[place]
                arguments = [new.get(one, one) if isinstance(one, relax.Var) else one for one in call.args]
                new[variable] = builder.emit(relax.Call(call.op, arguments, call.attrs, call.ty_args))
            ends = [one for one in inside if any(each not in inside for each in graph.readers.get(one, []))]
            ends = [graph.bindings[place][0] for place in places if graph.bindings[place][0] in ends]
            result = builder.emit_output(relax.Tuple([new[one] for one in ends]))
        builder.emit_func_output(result)
    return builder.get()["region"]


def variants(
    parts: Sequence[Region], found: Sequence[Site], core: Core | None = None
) -> tuple[Any, list[Variant]]:
    """Return a module with a function for each class of region and choice of options, and what each is."""
    classes = {part.key: part for part in reversed(parts)}
    module, made = tvm.IRModule(), []
    for number, (key, part) in enumerate(sorted(classes.items())):
        combinations = list(_combinations([found[k] for k in part.sites]))
        if len(combinations) > MAX_VARIANTS:
            continue
        for choices in combinations:
            name = f"region{number}_" + "_".join(map(str, choices))
            module[name] = copy_with_new_vars(part.function).with_attr("global_symbol", name)
            local, whole = sites(module, name), [found[k] for k in part.sites]
            if [set(site.options) for site in local] != [set(site.options) for site in whole]:
                del module[name]  # a site that is one only in the whole graph
                break
            local = [replace(site, place=own.place) for site, own in zip(whole, local, strict=True)]
            module = rewritten(module, local, choices, name, core)
            made.append(Variant(key, choices, name))
    return simplified(module), made


def _combinations(found: Sequence[Site]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(len(site.options)) for site in found))
