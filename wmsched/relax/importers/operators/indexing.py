"""Shapes, slices, places and orders: what is known is computed at import, what is open is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from wmsched.relax.importers.operators.casts import type_named
from wmsched.relax.importers.operators.elementwise import broadcast
from wmsched.relax.importers.operators.node import Node, is_float

op = relax.op
MAX_CONSTANT = 1 << 16  # elements of a filled tensor that is stored


def shape_of(node: Node) -> Any:
    shape = node.shape()
    start, end = node.integer("start"), node.attributes.get("end")
    return relax.const(np.asarray(shape[start : None if end is None else int(end)], np.int64))


def size_of(node: Node) -> Any:
    return relax.const(np.asarray(math.prod(node.shape()), np.int64))


def identity(node: Node) -> Any:
    return node.inputs[0]


def split(node: Node) -> Any:
    """Split; a part may be empty."""
    shape = node.shape()
    axis = node.axis(node.integer("axis"), len(shape))
    sizes = node.numbers("split")
    if node.has(1):
        sizes = [int(one) for one in node.constant(1, "the sizes of its parts").reshape(-1)]
    if sizes is None:
        count = node.integer("num_outputs", len(node.outputs))
        each = -(-shape[axis] // count)
        sizes = [max(0, min(each, shape[axis] - k * each)) for k in range(count)]
    if sum(sizes) != shape[axis]:
        node.refuse(f"its parts are {sizes} of {shape[axis]} elements")
    if len(sizes) == 1:
        return node.inputs[0]
    ends = np.cumsum(sizes)
    if min(sizes) > 0:
        parts = node.emit(op.split(node.inputs[0], [int(end) for end in ends[:-1]], axis))
        return [node.emit(relax.TupleGetItem(parts, k)) for k in range(len(sizes))]
    found = []
    for size, end in zip(sizes, ends):
        if size:
            cut = op.strided_slice(node.inputs[0], axes=[axis], begin=[int(end - size)], end=[int(end)])
        else:
            found.append(node.empty((*shape[:axis], 0, *shape[axis + 1 :]), node.inputs[0]))
            continue
        found.append(node.emit(cut))
    return found


def cut(node: Node) -> Any:
    """Slice of known bounds; bounds beyond the tensor end at it."""
    shape, rank = node.shape(), len(node.shape())
    if node.opset < 10:
        starts, ends, axes = (node.numbers(name) for name in ("starts", "ends", "axes"))
        steps = None
    else:
        given = [
            [int(one) for one in node.constant(k, f"its {word}").reshape(-1)] if node.has(k) else None
            for k, word in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))
        ]
        starts, ends, axes, steps = given
    if starts is None or ends is None:
        node.refuse("it has no starts or no ends")
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    axes = [node.axis(one, rank) for one in axes]
    begins, found, by = [0] * rank, list(shape), [1] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps):
        if step == 0:
            node.refuse("a step is 0")
        places = range(*slice(start, end, step).indices(shape[axis]))
        if step < 0:
            places = range(*_backwards(start, end, step, shape[axis]))
        begins[axis], found[axis], by[axis] = (places[0] if places else 0), len(places), step
    if tuple(found) == shape and all(step == 1 for step in by):
        return node.inputs[0]
    if 0 in found:
        return node.empty(found, node.inputs[0])
    if all(step > 0 for step in by):
        moved = [k for k in range(rank) if found[k] != shape[k] or by[k] != 1]
        return node.emit(
            op.strided_slice(
                node.inputs[0],
                axes=moved,
                begin=[begins[k] for k in moved],
                end=[begins[k] + (found[k] - 1) * by[k] + 1 for k in moved],
                strides=[by[k] for k in moved],
            )
        )

    def compute(data: Any) -> Any:
        return te.compute(
            found, lambda *at: data(*(b + k * s for b, k, s in zip(begins, at, by))), name="cut"
        )

    return node.compute(compute, node.inputs[0])


def _backwards(start: int, end: int, step: int, extent: int) -> tuple[int, int, int]:
    """Return bounds of a slice that runs backwards, as the standard clamps them."""
    start = start + extent if start < 0 else start
    end = end + extent if end < 0 else end
    return min(max(start, 0), extent - 1), min(max(end, -1), extent - 1), step


def expand(node: Node) -> Any:
    """Expand: both shapes are broadcast, to a shape that is known."""
    wanted = [int(one) for one in node.constant(1, "the shape it expands to").reshape(-1)]
    shape = broadcast(list(node.shape()), wanted)
    if tuple(shape) == node.shape():
        return node.inputs[0]
    return node.emit(op.broadcast_to(node.inputs[0], tuple(shape)))


def one_hot(node: Node) -> Any:
    """OneHot of values of any type; a negative index counts from the end, one beyond gives no truth."""
    depth = int(node.constant(1, "its depth").reshape(-1)[0])
    shape, kind = node.shape(), node.dtype(2)
    axis = node.axis(node.integer("axis", -1), len(shape) + 1)
    indices = node.cast(node.inputs[0], "int64")

    def compute(index: Any, values: Any) -> Any:
        def element(*place: Any) -> Any:
            own = [k for n, k in enumerate(place) if n != axis]
            at = index(*own)
            at = tirx.Select(at < 0, at + depth, at)
            return tirx.Select(tirx.EQ(at, place[axis].astype("int64")), values(1), values(0))

        return te.compute((*shape[:axis], depth, *shape[axis:]), element, name="one_hot")

    del kind
    return node.compute(compute, indices, node.inputs[2])


def eye_like(node: Node) -> Any:
    shape = node.shape()
    kind = type_named(node, node.integer("dtype")) if "dtype" in node.attributes else node.dtype()
    return node.const(np.eye(shape[0], shape[1], node.integer("k")), kind)


def reverse_sequence(node: Node) -> Any:
    """ReverseSequence: the first elements of each sequence, backwards."""
    shape = node.shape()
    time = node.axis(node.integer("time_axis"), len(shape))
    batch = node.axis(node.integer("batch_axis", 1), len(shape))

    def compute(data: Any, lengths: Any) -> Any:
        def element(*place: Any) -> Any:
            length = lengths(place[batch])
            at = place[time].astype("int64")
            own = list(place)
            own[time] = tirx.Select(at < length, te.max(length - 1 - at, 0), at)
            return data(*own)

        return te.compute(shape, element, name="reversed")

    return node.compute(compute, node.inputs[0], node.cast(node.inputs[1], "int64"))


def tensor_scatter(node: Node) -> Any:
    """TensorScatter: an update written into a cache, from a place of its own in each sequence."""
    shape, update = node.shape(0), node.shape(1)
    axis = node.axis(node.integer("axis", -2), len(shape))
    circular = node.text("mode", "linear") == "circular"
    extent, count = shape[axis], update[axis]
    starts = node.cast(node.inputs[2], "int64") if node.has(2) else node.const(np.zeros(shape[0]), "int64")

    def compute(past: Any, new: Any, start: Any) -> Any:
        def element(*place: Any) -> Any:
            away = place[axis].astype("int64") - start(place[0])
            if circular:
                away = tirx.floormod(away, tirx.const(extent, "int64"))
            inside = tirx.And(away >= 0, away < count)
            own = list(place)
            own[axis] = te.max(te.min(away, count - 1), 0)
            return tirx.Select(inside, new(*own), past(*place))

        return te.compute(shape, element, name="scattered")

    return node.compute(compute, node.inputs[0], node.inputs[1], starts)


def cumulative(name: str) -> Callable[[Node], Any]:
    """Return a converter of CumSum or CumProd."""

    def convert(node: Node) -> Any:
        shape = node.shape()
        axis = node.axis(int(node.constant(1, "its axis").reshape(-1)[0]), len(shape))
        backwards, dtype = node.integer("reverse"), node.dtype()
        value = node.emit(op.flip(node.inputs[0], axis)) if backwards else node.inputs[0]
        exclusive = bool(node.integer("exclusive"))
        found = node.emit(getattr(op, name)(value, axis, dtype, exclusive))
        return node.emit(op.flip(found, axis)) if backwards else found

    return convert


def space_to_depth(node: Node) -> Any:
    n, c, h, w = node.shape()
    block = node.integer("blocksize", 1)
    if h % block or w % block:
        node.refuse(f"an image of {h} by {w} has no blocks of {block}")
    order = [0, 3, 5, 1, 2, 4] if node.text("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    parts = node.reshape(node.inputs[0], (n, c, h // block, block, w // block, block))
    turned = node.emit(op.permute_dims(parts, order))
    return node.reshape(turned, (n, c * block * block, h // block, w // block))


def gather(node: Node) -> Any:
    """Gather: negative indices count from the end."""
    shape = node.shape()
    axis = node.axis(node.integer("axis"), len(shape))
    indices = node.inputs[1]
    from tvm.ir import Constant

    if isinstance(indices, Constant):
        places = indices.value.numpy()
        if places.size and (places.min() < -shape[axis] or places.max() >= shape[axis]):
            node.refuse(f"an index is beyond {shape[axis]} elements")
        indices = relax.const(np.where(places < 0, places + shape[axis], places).astype(places.dtype))
    else:
        zero, extent = (node.const(number, node.dtype(1)) for number in (0, shape[axis]))
        below = node.emit(op.less(indices, zero))
        indices = node.emit(op.where(below, node.emit(op.add(indices, extent)), indices))
    return node.emit(op.take(node.inputs[0], indices, axis=axis))


def range_of(node: Node) -> Any:
    start, limit, delta = (
        node.constant(k, word).reshape(-1)[0] for k, word in enumerate(("its start", "its limit", "its step"))
    )
    if delta == 0:
        node.refuse("its step is 0")
    kind = node.dtype()
    count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    values = np.asarray(start, "float64" if is_float(kind) else "int64") + np.arange(count) * (
        float(delta) if is_float(kind) else int(delta)
    )
    return node.const(values, kind)


def filled(node: Node) -> Any:
    """ConstantOfShape."""
    from onnx import numpy_helper

    shape = [int(one) for one in node.constant(0, "the shape of its result").reshape(-1)]
    value = node.attributes.get("value")
    array = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    dtype = str(array.dtype)
    if 0 < math.prod(shape) <= MAX_CONSTANT:
        return node.const(np.full(shape, array.reshape(())), dtype)
    return node.emit(op.full(tuple(shape), node.const(array.reshape(()), dtype), dtype))


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    "ConstantOfShape": filled,
    "CumProd": cumulative("cumprod"),
    "CumSum": cumulative("cumsum"),
    "Expand": expand,
    "EyeLike": eye_like,
    "Gather": gather,
    "Identity": identity,
    "OneHot": one_hot,
    "Range": range_of,
    "ReverseSequence": reverse_sequence,
    "Shape": shape_of,
    "Size": size_of,
    "Slice": cut,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "TensorScatter": tensor_scatter,
}
