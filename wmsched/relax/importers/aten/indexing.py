"""Reading by indices: several tensors of indices, views of strides, and embeddings in bags."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax, te, tirx

from wmsched.relax.importers.aten.node import Node, long

op = relax.op
#: Operators whose result is another look at the memory of their first argument.
VIEWS = tuple(
    f"aten.{name}"
    for name in (
        "alias.default", "as_strided.default", "diagonal.default", "expand.default", "permute.default",
        "select.int", "slice.Tensor", "squeeze.dims", "squeeze.dim", "transpose.int", "unfold.default",
        "unsqueeze.default", "view.default",
    )
)  # fmt: skip
Convert = Callable[[Node], Any]


def tensors_of(node: Node) -> list[tuple[int, Any]]:
    """Return the axes that have a tensor of indices, with it; refuse masks."""
    found = []
    for axis, (index, source) in enumerate(zip(node["indices"], node.sources["indices"])):
        if index is None:
            continue
        if source.meta["val"].dtype in (torch.bool, torch.uint8):
            node.refuse("how many elements a mask takes hangs on data, and programs have fixed shapes")
        found.append((axis, index))
    return found


def index_shape(node: Node, given: list[tuple[int, Any]]) -> tuple[int, ...]:
    """Return the common shape of the tensors of indices."""
    shapes = [node.known(node.sources["indices"][axis].meta["val"].shape) for axis, _ in given]
    return tuple(torch.broadcast_shapes(*shapes))


def apart(axes: list[int]) -> bool:
    """Return whether another axis lies between the indexed ones; their places then come first."""
    return axes[-1] - axes[0] + 1 != len(axes)


def indexed(node: Node) -> Any:
    """Elements at tensors of indices; a single one is TVM's take."""
    given = tensors_of(node)
    if len(given) == 1:
        ((axis, index),) = given
        return node.emit(op.take(node[node.first], index, axis=axis))
    shape, axes = node.shape_of(node.first), [axis for axis, _ in given]
    common = index_shape(node, given)
    start = 0 if apart(axes) else axes[0]

    def compute(data: Any, *indices: Any) -> Any:
        def element(*place: Any) -> Any:
            at = place[start : start + len(common)]
            rest = list(place[:start] + place[start + len(common) :])
            own = []
            for axis in range(len(shape)):
                if axis in axes:
                    own.append(_shared(indices[axes.index(axis)], at))
                else:
                    own.append(rest.pop(0))
            return data(*own)

        return te.compute(long(node.shape()), element, name="taken")

    if 0 in node.shape():
        return node.empty(node.shape(), node.dtype())
    return node.compute(compute, node[node.first], *[index for _, index in given])


def _shared(tensor: Any, place: tuple[Any, ...]) -> Any:
    """Return the element of a tensor that is broadcast to a place."""
    own = place[len(place) - len(tensor.shape) :]
    return tensor(*(0 if int(extent) == 1 else at for at, extent in zip(own, tensor.shape)))


def strided(node: Node) -> Any:
    """As_strided: elements of the flat tensor at steps; of a view, those of the tensor that it looks at."""
    held = node.sources[node.first]
    while _has_gaps(held.meta["val"]) and str(held.target) in VIEWS:
        held = held.args[0]
    source = held.meta["val"]
    shape = node.known(source.shape)
    # PyTorch counts steps in memory, where a transposed tensor lies in another order of its axes
    order = _order(source)
    if not source.permute(order).is_contiguous():
        node.refuse("a view of a tensor with gaps in memory is not supported")
    steps = node.known(node["stride"])
    own = node.sources[node.first].meta["val"].storage_offset()
    offset = node["storage_offset"] if node.has("storage_offset") else own
    (offset,) = node.known([offset])
    last = offset + sum((extent - 1) * step for extent, step in zip(node.shape(), steps))
    if source.storage_offset() or last >= math.prod(shape):
        node.refuse("it reads what lies beyond its tensor in memory")
    tensor = node.of(held)
    laid = tensor if source.is_contiguous() else node.emit(op.permute_dims(tensor, order))
    flat = node.reshape(laid, (math.prod(shape),))

    def element(data: Any) -> Callable[..., Any]:
        def at(*place: Any) -> Any:
            where: Any = tirx.const(offset, "int64")
            for one, step in zip(place, steps):
                where = where + one * step
            return data(where)

        return at

    return node.elements(node.shape(), element, flat)


def _order(value: torch.Tensor) -> list[int]:
    """Return the axes of a tensor in the order in which they lie in memory, the outermost first."""
    return sorted(range(value.dim()), key=lambda axis: -value.stride(axis))


def _has_gaps(value: torch.Tensor) -> bool:
    """Return whether a tensor is a part of another one in memory, or reads an element twice."""
    return bool(value.storage_offset()) or not value.permute(_order(value)).is_contiguous()


def diagonal(node: Node) -> Any:
    shape = node.shape_of(node.first)
    one, other = (node.axis(node[name], len(shape)) for name in ("dim1", "dim2"))
    offset = int(node["offset"])

    def element(data: Any) -> Callable[..., Any]:
        def at(*place: Any) -> Any:
            rest, own = list(place[:-1]), []
            for axis in range(len(shape)):
                if axis == one:
                    own.append(place[-1] + max(-offset, 0))
                elif axis == other:
                    own.append(place[-1] + max(offset, 0))
                else:
                    own.append(rest.pop(0))
            return data(*own)

        return at

    return node.elements(node.shape(), element, node[node.first])


def gathered(node: Node) -> Any:
    """Gather along an axis; the index may be smaller than the tensor along the others."""
    rank = len(node.shape_of(node.first))
    if not rank:
        return node[node.first]
    axis = node.axis(node["dim"], rank)

    def element(data: Any, index: Any) -> Callable[..., Any]:
        def at(*place: Any) -> Any:
            own = list(place)
            own[axis] = index(*place)
            return data(*own)

        return at

    if not node.shape_of("index"):
        return node.reshape(node.emit(op.take(node[node.first], node["index"], axis=0)), ())
    return node.elements(node.shape(), element, node[node.first], node["index"])


def bags(node: Node) -> Any:
    """Embedding_bag: sums, means or maxima of the rows of each bag. Its other results are for training."""
    if any(user.args[1] != 0 for user in node.fx.users):
        node.refuse("its results for training are not supported")
    count = node.shape_of("indices")[0]
    rows, width = node.shape_of("weight")
    bags_ = node.shape()[0]
    kind, padding = int(node["mode"]), int(node["padding_idx"])
    dtype, last = node.dtype(), bool(node["include_last_offset"])
    weighted = node.has("per_sample_weights")
    given = [node["per_sample_weights"]] if weighted else []
    starts = node.shape_of("offsets")[0]
    del rows

    def compute(weight: Any, indices: Any, offsets: Any, *more: Any) -> Any:
        def parts(bag: Any, column: Any) -> tuple[Any, Any, Any]:
            over = te.reduce_axis((0, tirx.IntImm("int64", count)), name="k")
            end = offsets(bag + 1) if last else offsets(te.min(bag + 1, tirx.const(starts - 1, "int64")))
            final = tirx.const(False, "bool") if last else tirx.EQ(bag, tirx.const(starts - 1, "int64"))
            inside = tirx.And(offsets(bag) <= over, tirx.Or(final, end > over))
            if padding >= 0:
                inside = tirx.And(inside, tirx.NE(indices(over), tirx.const(padding, indices.dtype)))
            value = weight(indices(over), column)
            return inside, value * more[0](over) if more else value, over

        zero, one = tirx.const(0, dtype), tirx.const(1, dtype)

        def add(bag: Any, column: Any) -> Any:
            inside, value, over = parts(bag, column)
            return te.sum(tirx.Select(inside, value, zero), axis=over)

        def number(bag: Any, column: Any) -> Any:
            inside, _, over = parts(bag, column)
            return te.sum(tirx.Select(inside, one, zero), axis=over)

        def most(bag: Any, column: Any) -> Any:
            inside, value, over = parts(bag, column)
            return te.max(tirx.Select(inside, value, tirx.min_value(dtype)), axis=over)

        shape = long((bags_, width))
        if kind == 0:
            return te.compute(shape, add, name="sums")
        counts = te.compute(shape, number, name="counts")
        found = te.compute(shape, add if kind == 1 else most, name="parts")

        def element(*place: Any) -> Any:
            some = counts(*place) > zero
            value = found(*place) / tirx.Select(some, counts(*place), one) if kind == 1 else found(*place)
            return tirx.Select(some, value, zero)

        return te.compute(shape, element, name="bags")

    found = node.compute(compute, node["weight"], node["indices"], node["offsets"], *given)
    return (found, None, None, None)


def selected(node: Node) -> Any:
    """Index_select: a single index of a tensor without axes takes the tensor."""
    shape = node.shape_of(node.first)
    if not shape:
        return node[node.first]
    index = node["index"] if node.shape_of("index") else node.reshape(node["index"], (1,))
    return node.emit(op.take(node[node.first], index, axis=node.axis(node["dim"], len(shape))))


def repeated(node: Node) -> Any:
    """Repeat_interleave of numbers of repeats: at each place how many of their running sums it has passed."""
    if not all(isinstance(one, int) for one in node.result().shape):
        node.refuse("how many elements it gives hangs on data, and programs have fixed shapes")
    (size,), (count,) = node.shape(), node.shape_of("repeats")
    if not size:
        return node.empty((size,), node.dtype())
    ends = node.emit(op.cumsum(node.cast(node["repeats"], "int64"), axis=0))

    def compute(passed: Any) -> Any:
        over = te.reduce_axis((0, tirx.IntImm("int64", count)), name="k")
        return te.compute(
            long((size,)),
            lambda place: te.sum(tirx.Cast("int64", passed(over) <= place), axis=over),
            name="places",
        )

    return node.cast(node.compute(compute, ends), node.dtype())


def unset(node: Node) -> Any:
    """Empty tensors: PyTorch promises no value, and 0 is one."""
    return node.emit(op.zeros(node.shape(), node.dtype()))


def known_number(node: Node) -> Any:
    """Return a number that follows from shapes."""
    (found,) = node.known([node.fx.meta["val"]])
    return found


def broadcast_in(node: Node) -> Any:
    """Broadcast_in_dim: the tensor's axes lie at given axes of the result."""
    shape, axes = node.shape(), [int(one) for one in node["broadcast_dimensions"]]
    own = node.shape_of(node.first)
    wide = [own[axes.index(k)] if k in axes else 1 for k in range(len(shape))]
    return node.emit(op.broadcast_to(node.reshape(node[node.first], wide), shape))


CONVERTERS: dict[str, Convert] = {
    "aten.index.Tensor": indexed,
    "aten.as_strided.default": strided,
    "aten.diagonal.default": diagonal,
    "aten.gather.default": gathered,
    "aten.index_select.default": selected,
    "aten.repeat_interleave.Tensor": repeated,
    "aten.sym_storage_offset.default": known_number,
    "aten._embedding_bag_forward_only.default": bags,
    "aten._embedding_bag.default": bags,
    "aten.empty_strided.default": unset,
    "prims.empty_strided.default": unset,
    "prims.broadcast_in_dim.default": broadcast_in,
}
