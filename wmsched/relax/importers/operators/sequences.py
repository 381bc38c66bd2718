"""Sequences whose length is known: lists of tensors at import, of which programs see the tensors alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from wmsched.relax.importers.operators.node import Node

op = relax.op


def _items(node: Node) -> list[Any]:
    value = node.inputs[0]
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    if isinstance(value.ty, relax.TupleType):
        return [node.emit(relax.TupleGetItem(value, k)) for k in range(len(value.ty.fields))]
    return node.refuse("it reads a tensor where a sequence is wanted")


def _place(node: Node, at: int, count: int, default: int) -> int:
    """Return a position in a sequence, from the front; refuse one that it lacks."""
    place = int(node.constant(at, "its position").reshape(-1)[0]) if node.has(at) else default
    if not -count <= place < count:
        node.refuse(f"the position {place} is beyond {count} elements")
    return place % count


def construct(node: Node) -> Any:
    return relax.Tuple([value for value in node.inputs if value is not None])


def take(node: Node) -> Any:
    items = _items(node)
    return items[_place(node, 1, len(items), -1)]


def erase(node: Node) -> Any:
    items = _items(node)
    del items[_place(node, 1, len(items), -1)]
    return relax.Tuple(items)


def insert(node: Node) -> Any:
    items = _items(node)
    count = len(items)
    place = int(node.constant(2, "its position").reshape(-1)[0]) if node.has(2) else count
    if not -count <= place <= count:
        node.refuse(f"the position {place} is beyond {count} elements")
    items.insert(place if place >= 0 else place + count, node.inputs[1])
    return relax.Tuple(items)


def length(node: Node) -> Any:
    return relax.const(len(_items(node)), "int64")


def join(node: Node) -> Any:
    items, axis = _items(node), node.integer("axis")
    if not items:
        node.refuse("it joins no tensor")
    rank = len(node.shape_of(items[0])) + node.integer("new_axis")
    axis = node.axis(axis, rank)
    if node.integer("new_axis"):
        items = [node.emit(op.expand_dims(item, axis)) for item in items]
    return items[0] if len(items) == 1 else node.emit(op.concat(items, axis))


def split(node: Node) -> Any:
    """SplitToSequence: parts of a known size, or single elements without their axis."""
    shape = node.shape()
    axis = node.axis(node.integer("axis"), len(shape))
    keep, extent = bool(node.integer("keepdims", 1)), shape[axis]
    if node.has(1):
        given = node.constant(1, "the sizes of its parts")
        sizes = [int(one) for one in given.reshape(-1)]
        if given.ndim == 0:
            each = sizes[0]
            sizes = [min(each, extent - start) for start in range(0, extent, each)]
        keep = True
    else:
        sizes = [1] * extent
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        node.refuse(f"its parts are {sizes} of {extent} elements")
    found, start = [], 0
    for size in sizes:
        if not size:
            found.append(node.empty((*shape[:axis], 0, *shape[axis + 1 :]), node.inputs[0]))
            continue
        part = node.emit(op.strided_slice(node.inputs[0], axes=[axis], begin=[start], end=[start + size]))
        found.append(part if keep else node.emit(op.squeeze(part, [axis])))
        start += size
    return relax.Tuple(found)


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    "ConcatFromSequence": join,
    "SequenceAt": take,
    "SequenceConstruct": construct,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SplitToSequence": split,
}
