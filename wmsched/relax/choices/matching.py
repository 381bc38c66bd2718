"""Attention in a graph: two products, a softmax between them, and what only moves elements around them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import tvm

from wmsched.relax.choices.attention import EMPTY, NAN, Attention
from wmsched.relax.choices.following import Graph
from wmsched.relax.choices.views import Strided, View, broadcast, is_reshape, result_view, scaled_by, view_of
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["Attended", "attended"]

SOFTMAX, MATMUL = "relax.nn.softmax", "relax.matmul"
MAX_MASKS = 4
#: How PyTorch's own attention finds rows whose scores are all -inf, the last operator first.
EMPTY_TEST = (
    ("relax.logical_not",),
    ("relax.astype", "relax.not_equal"),
    ("relax.max",),
    ("relax.astype",),
    ("relax.logical_not",),
    ("relax.equal",),
)
TESTED = {"relax.equal": -math.inf, "relax.not_equal": 0.0}


class Named(Graph, Protocol):
    """What is read of `wmsched.relax.choices.rewrite.Rewriter`."""

    def operator(self, value: Any) -> str:
        """Return an expression's operator by name."""


@dataclass(frozen=True)
class Attended:
    """An attention in its graph.

    Parameters
    ----------
    shape : Attention
    last : Var
        What the kernel computes.
    inside : frozenset of Var
        What is no longer computed for itself.
    arguments : tuple of Relax expressions
        Of the kernel; variables are of the old function.
    """

    shape: Attention
    last: Any
    inside: frozenset[Any]
    arguments: tuple[Any, ...]


@dataclass
class _Scores:
    """What is before a softmax: a product, its factor, and what is added to it."""

    product: Any
    inside: list[Any]
    factor: float = 1.0
    masks: list[Any] = field(default_factory=list)


def attended(graph: Named, variable: Any) -> Attended | None:
    """Return the attention whose softmax a variable is; None if it is none, or no kernel can compute it."""
    call = graph.value[variable]
    shape = shape_of(call)
    if graph.operator(call) != SOFTMAX or shape is None or len(shape) not in (3, 4):
        return None
    if int(call.attrs.axis) not in (-1, len(shape) - 1) or str(call.ty.dtype) != "float32":
        return None
    guarded, zero = _guarded(graph, variable, call.args[0])
    scores = _scores(graph, call.args[0], shape, 2 if zero == EMPTY else 1)
    after = _reshaped(graph, guarded[-1], shape)
    reader = _only_reader(graph, after[-1])
    if scores is None or graph.operator(graph.value.get(reader)) != MATMUL:
        return None
    product = graph.value[reader]
    if not product.args[0].same_as(after[-1]):
        return None
    operands = (*scores.product.args, product.args[1])
    sizes = [shape_of(one) or () for one in operands]
    if len({size[:-2] for size in (*sizes, shape_of(product) or ())}) > 1:
        return None  # one side has fewer heads
    heads = ((1, *shape)[-4], shape[-3])
    if math.prod(heads) != math.prod(sizes[0][:-2]):
        return None
    query, key, value = (
        view_of(graph.value, one, (*heads, *size[-2:])) for one, size in zip(operands, sizes)
    )
    masks = [broadcast(mask, (1, *shape)[-4:]) for mask in scores.masks]
    result = result_view(graph, reader, (*heads, shape[-2], sizes[2][-1]))
    if query is None or key is None or value is None or value.factor != 1.0 or result is None:
        return None
    moved, places = result
    found = _attention(
        shape,
        sizes,
        [query, key, value, *masks],
        places,
        scores.factor * query.factor * key.factor,
        zero,
    )
    if found is None:
        return None
    inside = frozenset({*scores.inside, variable, *guarded, *after, *moved}) - {moved[-1]}
    return Attended(found, moved[-1], inside, (query.source, key.source, value.source, *scores.masks))


def _attention(
    shape: tuple[int, ...],
    sizes: list[tuple[int, ...]],
    views: list[View | None],
    result: Strided,
    factor: float,
    zero: str,
) -> Attention | None:
    """Return the attention; None if elements of its rows do not lie side by side."""
    query, key, value, *masks = (None if view is None else view.places for view in views)
    if query is None or key is None or value is None:
        return None
    key = Strided(key.offset, (*key.strides[:2], key.strides[3], key.strides[2]))  # it is transposed
    added = tuple(mask for mask in masks if mask is not None)
    if len(added) < len(masks) or any(one.strides[3] != 1 for one in (query, value, *added, result)):
        return None
    return Attention(
        batch=(1, *shape)[-4], heads=shape[-3], rows=shape[-2], columns=shape[-1],
        depth=sizes[0][-1], outputs=sizes[2][-1],
        query=query, key=key, value=value, result=result,
        masks=added, factor=factor, zero=zero,
    )  # fmt: skip


def _scores(graph: Named, expression: Any, shape: tuple[int, ...], readers: int = 1) -> _Scores | None:
    """Return what scores are computed of, if nothing else reads a part of it."""
    value = graph.value.get(expression)
    if value is None or len(graph.readers.get(expression, ())) != readers:
        return None
    found: _Scores | None = None
    if graph.operator(value) == MATMUL and str(value.ty.dtype) == "float32":
        return _Scores(value, [expression])
    if number := scaled_by(value):
        found = _unmasked(_scores(graph, value.args[0], shape))
        if found is not None:
            found.factor *= number
    elif is_reshape(value) and (shape_of(value.args[0]) or ())[-2:] == shape[-2:]:
        found = _unmasked(_scores(graph, value.args[0], shape))
    elif graph.operator(value) == "relax.add" and shape_of(value) == shape:
        found, mask = _scores(graph, value.args[0], shape), value.args[1]
        if found is None:
            found, mask = _scores(graph, value.args[1], shape), value.args[0]
        if found is None or len(found.masks) == MAX_MASKS:
            return None
        if not isinstance(mask, tvm.ir.Constant) or mask.value.numpy().any():
            found.masks.append(mask)
    if found is not None:
        found.inside.append(expression)
    return found


def _unmasked(found: _Scores | None) -> _Scores | None:
    return None if found is None or found.masks else found


def _guarded(graph: Named, variable: Any, scores: Any) -> tuple[list[Any], str]:
    """Return the softmax, after it what makes rows of weights zero as PyTorch exports it, and which rows."""
    readers = [one for one in graph.readers.get(variable, ()) if one is not None]
    ends = [one for one in readers if graph.operator(graph.value[one]) == "relax.where"]
    if len(readers) != len(graph.readers.get(variable, ())) or len(ends) != 1:
        return [variable], ""
    test, zero, otherwise = graph.value[ends[0]].args
    nothing = isinstance(zero, tvm.ir.Constant) and not zero.value.numpy().any()
    if not nothing or not otherwise.same_as(variable):
        return [variable], ""
    if len(readers) == 1:
        inside = _chain(graph, test, EMPTY_TEST)
        if inside and graph.value[inside[-1]].args[0].same_as(scores):
            return [variable, *inside, ends[0]], EMPTY
    inside = _chain(graph, test, (("relax.isnan",),))
    if len(readers) == 2 and inside and graph.value[test].args[0].same_as(variable):
        return [variable, test, ends[0]], NAN
    return [variable], ""


def _chain(graph: Named, variable: Any, names: tuple[tuple[str, ...], ...]) -> list[Any]:
    """Return a variable and what its first operands are, each read by one alone; [] if operators differ."""
    found: list[Any] = []
    for allowed in names:
        value = graph.value.get(variable)
        name = graph.operator(value)
        if value is None or name not in allowed or len(graph.readers[variable]) != 1:
            return []
        if name == "relax.max":
            axes = value.attrs.axis
            if axes is None or [int(axis) for axis in axes] not in ([-1], [len(shape_of(value) or ()) - 1]):
                return []
        if name in TESTED and not _is_number(value.args[1], TESTED[name]):
            return []
        found.append(variable)
        variable = value.args[0]
    return found


def _is_number(expression: Any, number: float) -> bool:
    return isinstance(expression, tvm.ir.Constant) and bool((expression.value.numpy() == number).all())


def _reshaped(graph: Named, variable: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return a variable, and after it what gives its matrices other leading axes."""
    found = [variable]
    while (reader := _only_reader(graph, found[-1])) is not None and is_reshape(graph.value[reader]):
        if (shape_of(graph.value[reader]) or ())[-2:] != shape[-2:]:
            break
        found.append(reader)
    return found


def _only_reader(graph: Named, variable: Any) -> Any:
    readers = graph.readers.get(variable, ())
    return readers[0] if len(readers) == 1 else None
