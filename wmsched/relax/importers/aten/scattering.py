"""Writing by indices: rows, single elements, masks, diagonals and strides."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tvm import relax, te, tirx

from wmsched.relax.importers.aten.indexing import apart, index_shape, tensors_of
from wmsched.relax.importers.aten.node import Node, long
from wmsched.relax.importers.operators.node import greatest, least

op = relax.op
aten = torch.ops.aten
Convert = Callable[[Node], Any]
#: Operators that leave elements where they are.
CASTS = (aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.clone.default, aten.alias.default)
REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def put(node: Node) -> Any:
    """Index_put: elements at tensors of indices, or where a mask is true."""
    masks = [k for k, source in enumerate(node.sources["indices"]) if source is not None and _is_mask(source)]
    if masks:
        return _where(node, masks)
    given = tensors_of(node)
    shape, axes = node.shape_of(node.first), [axis for axis, _ in given]
    common = index_shape(node, given)
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    start = 0 if apart(axes) else axes[0]
    extents = [shape[axis] for axis in rest]
    region = [*extents[:start], *common, *extents[start:]]
    values = node.emit(op.broadcast_to(node.value("values", node.dtype()), region))
    # the indexed axes first, in both
    order = [*range(start, start + len(common)), *range(start), *range(start + len(common), len(region))]
    values = node.emit(op.permute_dims(values, order)) if order != sorted(order) else values
    data = node[node.first]
    turned = [*axes, *rest]
    data = node.emit(op.permute_dims(data, turned)) if turned != sorted(turned) else data
    count = math.prod(common)
    flat: Any = None
    for axis, index in given:
        size = node.const(shape[axis], "int64")
        place = node.emit(op.broadcast_to(node.cast(index, "int64"), common))
        below = node.emit(op.less(place, node.const(0, "int64")))
        place = node.emit(op.where(below, node.emit(op.add(place, size)), place))
        flat = place if flat is None else node.emit(op.add(node.emit(op.multiply(flat, size)), place))
    head, width = math.prod(shape[axis] for axis in axes), math.prod(extents)
    found = _scattered(
        node,
        node.reshape(data, (head, width)),
        node.reshape(flat, (count,)),
        node.reshape(values, (count, width)),
        bool(node["accumulate"]),
    )
    found = node.reshape(found, [shape[axis] for axis in turned])
    back = [turned.index(axis) for axis in range(len(shape))]
    return node.emit(op.permute_dims(found, back)) if back != sorted(back) else found


def _scattered(node: Node, rows: Any, places: Any, values: Any, adds: bool) -> Any:
    """Return rows with others written or added at places."""
    (count,) = (int(one) for one in places.ty.shape)
    width = int(rows.ty.shape[1])
    if not count or not width:
        return rows
    places = node.emit(op.broadcast_to(node.reshape(places, (count, 1)), (count, width)))
    dtype = node.dtype_of(rows)
    if dtype == "bool":
        wide = [node.cast(one, "int8") for one in (rows, values)]
        found = node.emit(op.scatter_elements(wide[0], places, wide[1], axis=0, reduction=_how(adds)))
        return node.cast(found, "bool")
    return node.emit(op.scatter_elements(rows, places, values, axis=0, reduction=_how(adds)))


def _how(adds: bool) -> str:
    return "add" if adds else "update"


def _is_mask(source: Any) -> bool:
    return source.meta["val"].dtype in (torch.bool, torch.uint8)


def _where(node: Node, masks: list[int]) -> Any:
    """Write one value, or one row, where a mask of leading axes is true."""
    several = [k for k, source in enumerate(node.sources["indices"]) if source is not None]
    shape, place = node.shape_of(node.first), masks[0]
    mask = node.sources["indices"][place]
    ranks = len(node.known(mask.meta["val"].shape))
    values = node.known(node.sources["values"].meta["val"].shape)
    rest = shape[place + ranks :]
    rows = len(values) > len(rest) and math.prod(values[: len(values) - len(rest)]) != 1
    if len(several) != 1 or place or rows:
        node.refuse("how many elements a mask takes hangs on data, and programs have fixed shapes")
    flags = node.cast(node["indices"][place], "bool")
    flags = node.reshape(flags, [*shape[:ranks], *(1 for _ in rest)])
    value = node.value("values", node.dtype())
    extra = len(values) - len(rest)
    value = node.reshape(value, values[extra:]) if extra > 0 else value
    data = node[node.first]
    if node["accumulate"]:
        value = node.emit(op.add(data, value))
    return node.emit(op.where(flags, value, data))


def scattered(node: Node) -> Any:
    """Scatter along an axis, with or without a reduction."""
    shape = node.shape_of(node.first)
    value = node.arguments.get("src", node.arguments.get("value"))
    index = node.shape_of("index")
    if not isinstance(value, relax.Expr):
        value = node.emit(op.full(index, node.const(value, node.dtype()), node.dtype()))
    value = node.cast(value, node.dtype())
    how = node.arguments.get("reduce")
    how = "sum" if "scatter_add" in node.name else how
    return _elements(node, node[node.first], node["index"], value, shape, index, how)


def _elements(
    node: Node, data: Any, places: Any, value: Any, shape: tuple[int, ...], index: tuple[int, ...], how: Any
) -> Any:
    """Return a scatter: a flat one, since TVM's has the index span all other axes."""
    if 0 in index:
        return data
    if not shape:
        data, places, value = (node.reshape(one, (1,)) for one in (data, places, value))
        return node.reshape(_elements(node, data, places, value, (1,), (1,), how), ())
    index = index or (1,)
    axis = node.axis(node["dim"], len(shape))
    own = [int(one) for one in value.ty.shape]
    if own != list(index):
        value = node.emit(op.strided_slice(value, range(len(index)), [0] * len(index), index))
    steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    base = np.zeros(index, np.int64)
    for k, extent in enumerate(index):
        if k != axis:
            base += (np.arange(extent) * steps[k]).reshape([-1 if j == k else 1 for j in range(len(index))])
    count = math.prod(index)
    along = node.emit(op.multiply(node.cast(places, "int64"), node.const(steps[axis], "int64")))
    flat = node.reshape(node.emit(op.add(along, relax.const(base, "int64"))), (count,))
    found = _reduced(node, node.reshape(data, (math.prod(shape),)), flat, node.reshape(value, (count,)), how)
    return node.reshape(found, shape)


def _reduced(node: Node, data: Any, places: Any, values: Any, how: Any) -> Any:
    """Return flat elements with others written or reduced at places."""
    dtype = node.dtype_of(data)

    def scatter(into: Any, what: Any, reduction: str) -> Any:
        return node.emit(op.scatter_elements(into, places, what, axis=0, reduction=reduction))

    if how is None:
        if dtype == "bool":
            return node.cast(scatter(node.cast(data, "int8"), node.cast(values, "int8"), "update"), "bool")
        return scatter(data, values, "update")
    if dtype == "bool":
        node.refuse(f"the reduction {how!r} of truths is not supported")
    keeps = bool(node.arguments.get("include_self", True))
    if how in REDUCTIONS:
        if not keeps:
            data = scatter(data, _filled_like(node, values, _neutral(how, dtype)), "update")
        return scatter(data, values, REDUCTIONS[how])
    if how != "mean":
        node.refuse(f"the reduction {how!r} is not supported")
    ones = _filled_like(node, values, tirx.const(1, dtype))
    counts = _filled_like(node, data, tirx.const(1 if keeps else 0, dtype))
    if not keeps:
        data = scatter(data, _filled_like(node, values, tirx.const(0, dtype)), "update")
    counts = node.emit(op.maximum(scatter(counts, ones, "add"), node.const(1, dtype)))
    total = scatter(data, values, "add")
    if "int" in dtype:
        return node.emit(op.floor_divide(total, counts))
    return node.emit(op.divide(total, counts))


def _neutral(how: str, dtype: str) -> Any:
    """Return what a reduction starts from."""
    if how == "amax":
        return least(dtype)
    if how == "amin":
        return greatest(dtype)
    return tirx.const(1 if how in ("prod", "multiply") else 0, dtype)


def _filled_like(node: Node, like: Any, value: Any) -> Any:
    shape = [int(one) for one in like.ty.shape]
    dtype = node.dtype_of(like)
    return node.compute(
        lambda _: te.compute(long(shape), lambda *place: value.astype(dtype), name="filled"), like
    )


def index_reduced(node: Node) -> Any:
    """Index_reduce: rows reduced into others, at places along an axis."""
    shape, rows = node.shape_of(node.first), node.shape_of("source")
    place = [1] * len(rows)
    if rows:
        axis = node.axis(node["dim"], len(shape))
        place[axis] = rows[axis]
    places = node.emit(op.broadcast_to(node.reshape(node["index"], place), rows))
    return _elements(node, node[node.first], places, node["source"], shape, rows, node["reduce"])


def flat_put(node: Node) -> Any:
    """Put: elements of the flat tensor."""
    shape = node.shape_of(node.first)
    count, size = math.prod(node.shape_of("index")), math.prod(shape)
    places = node.reshape(node.cast(node["index"], "int64"), (count,))
    below = node.emit(op.less(places, node.const(0, "int64")))
    places = node.emit(op.where(below, node.emit(op.add(places, node.const(size, "int64"))), places))
    how = "sum" if node["accumulate"] else None
    values = node.reshape(node["source"], (count,))
    return node.reshape(_reduced(node, node.reshape(node[node.first], (size,)), places, values, how), shape)


def masked_put(node: Node) -> Any:
    """Masked_scatter: the n-th true place takes the n-th element."""
    shape = node.shape()
    size, given = math.prod(shape), math.prod(node.shape_of("source"))
    if not size or not given:
        return node[node.first]
    mask = node.reshape(node.emit(op.broadcast_to(node["mask"], shape)), (size,))
    counts = node.emit(op.cumsum(node.cast(mask, "int64"), axis=0))
    data = node.reshape(node.emit(op.broadcast_to(node[node.first], shape)), (size,))
    source = node.reshape(node["source"], (given,))

    def element(flags: Any, order: Any, old: Any, new: Any) -> Callable[..., Any]:
        zero, last = tirx.const(0, "int64"), tirx.const(given - 1, "int64")

        def at(place: Any) -> Any:
            which = te.max(te.min(order(place) - 1, last), zero)
            return tirx.Select(flags(place), new(which), old(place))

        return at

    found = node.compute(
        lambda *tensors: te.compute(long((size,)), element(*tensors), name="out"), mask, counts, data, source
    )
    return node.reshape(found, shape)


def strided_put(node: Node) -> Any:
    """As_strided_scatter: elements of the flat tensor at steps."""
    source = node.sources[node.first].meta["val"]
    shape = node.known(source.shape)
    if not source.is_contiguous():
        node.refuse("a view of a tensor that does not lie in order is not supported")
    sizes, steps = node.known(node["size"]), node.known(node["stride"])
    offset = int(node["storage_offset"] or 0)
    places = np.full(sizes, offset, np.int64)
    for k, (extent, step) in enumerate(zip(sizes, steps)):
        places += (np.arange(extent) * step).reshape([-1 if j == k else 1 for j in range(len(sizes))])
    flat = node.reshape(node[node.first], (math.prod(shape),))
    values = node.reshape(node["src"], (places.size,))
    return node.reshape(_reduced(node, flat, relax.const(places.reshape(-1), "int64"), values, None), shape)


def diagonal_put(node: Node) -> Any:
    shape = node.shape_of(node.first)
    one, other = (node.axis(node[name], len(shape)) for name in ("dim1", "dim2"))
    offset = int(node["offset"])
    length = node.shape_of("src")[-1]

    def element(data: Any, src: Any) -> Callable[..., Any]:
        def at(*place: Any) -> Any:
            on = tirx.EQ(place[other] - place[one], tirx.const(offset, "int64"))
            step = te.min(place[one], place[other])
            rest = [p for k, p in enumerate(place) if k not in (one, other)]
            inside = te.min(step, tirx.const(length - 1, "int64"))
            return tirx.Select(on, src(*rest, inside), data(*place))

        return at

    return node.elements(node.shape(), element, node[node.first], node["src"])


def in_front(graph: Any) -> None:
    """Replace readings by masks that masked scatters alone use by an order with the mask's elements in front.

    How many elements a mask finds hangs on data. A masked scatter takes as many as it has places, so all
    elements can come in their stead.

    Parameters
    ----------
    graph : torch.fx.Graph
        Graph of PyTorch's core operators with the example's values; changed in place.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.index.Tensor and _is_by_mask(node):
            casts = _until_scattered(node)
            if casts is not None:
                _replace(graph, node, casts)


def _is_by_mask(node: Any) -> bool:
    """Return whether a reading has one mask, of the first axes of a tensor of fixed size."""
    source, indices = node.args
    if len(indices) != 1 or not isinstance(indices[0], torch.fx.Node):
        return False
    mask = indices[0].meta["val"]
    sizes = [*source.meta["val"].shape, *mask.shape]
    return mask.dtype is torch.bool and mask.dim() > 0 and all(isinstance(size, int) for size in sizes)


def _until_scattered(node: Any) -> list[Any] | None:
    """Return the casts of a node on its ways to masked scatters; None where anything else reads it."""
    casts: list[Any] = []
    if not node.users:
        return None
    for user in node.users:
        if user.target is aten.masked_scatter.default and node not in user.args[:2]:
            continue
        more = _until_scattered(user) if user.target in CASTS else None
        if more is None:
            return None
        casts += [user, *more]
    return casts


def _replace(graph: Any, node: Any, casts: list[Any]) -> None:
    source, (mask,) = node.args
    shape, rank = source.meta["val"].shape, mask.meta["val"].dim()
    rows = math.prod(shape[:rank])

    def made(target: Any, *arguments: Any, **options: Any) -> Any:
        new = graph.call_function(target, arguments, options)
        values = torch.fx.node.map_arg(arguments, lambda each: each.meta["val"])
        new.meta["val"] = target(*values, **options)
        return new

    with graph.inserting_before(node):
        flat = made(aten.view.default, mask, [rows])
        order = made(aten.sort.stable, flat, stable=True, dim=0, descending=True)
        places = made(operator.getitem, order, 1)
        data = made(aten.view.default, source, [rows, *shape[rank:]])
        found = made(aten.index_select.default, data, 0, places)
    node.replace_all_uses_with(found)
    graph.erase_node(node)
    for cast in casts:
        cast.meta["val"] = found.meta["val"].to(cast.meta["val"].dtype)


CONVERTERS: dict[str, Convert] = {
    "aten.index_put.default": put,
    "aten.index_put_.default": put,
    "aten._unsafe_index_put.default": put,
    "aten.scatter.src": scattered,
    "aten.scatter.value": scattered,
    "aten.scatter.reduce": scattered,
    "aten.scatter.value_reduce": scattered,
    "aten.scatter_add.default": scattered,
    "aten.scatter_reduce.two": scattered,
    "aten.index_reduce.default": index_reduced,
    "aten.put.default": flat_put,
    "aten.masked_scatter.default": masked_put,
    "aten.as_strided_scatter.default": strided_put,
    "prims.as_strided_scatter.default": strided_put,
    "aten.diagonal_scatter.default": diagonal_put,
}
