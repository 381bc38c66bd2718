"""Pooling: divisors, rounding up, the places of maxima, windows that adapt; and blocks of an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from wmsched.relax.importers.aten.node import Node, copied, long
from wmsched.relax.importers.operators.node import least
from wmsched.relax.importers.operators.reductions import first_of

op = relax.op
Convert = Callable[[Node], Any]


def _several(value: Any, rank: int, default: Any = None) -> list[int]:
    """Return a number for each spatial axis."""
    value = default if value is None or (isinstance(value, (list, tuple)) and not value) else value
    if isinstance(value, (list, tuple)):
        return [int(one) for one in (value if len(value) == rank else [value[0]] * rank)]
    return [int(value)] * rank


def _places(
    place: Sequence[Any], over: Sequence[Any], steps: Sequence[int], gaps: Sequence[int], pads: Sequence[int]
) -> list[Any]:
    return [p * s + k * g - a for p, k, s, g, a in zip(place, over, steps, gaps, pads)]


def _inside(at: Sequence[Any], extents: Sequence[int]) -> tuple[Any, list[Any]]:
    """Return whether places lie in the image, and the nearest that do."""
    inside: Any = tirx.const(True, "bool")
    for one, extent in zip(at, extents):
        inside = tirx.And(inside, tirx.And(one >= 0, one < extent))
    return inside, [te.max(te.min(one, extent - 1), 0) for one, extent in zip(at, extents)]


def max_pool(node: Node) -> Any:
    """Maxima of windows, with their places in the flat image; TVM's pooling where no place is read."""
    shape, found = node.shape_of(node.first), node.shape(0)
    rank = 3 if "3d" in node.name else 2
    sizes = _several(node["kernel_size"], rank)
    steps = _several(node["stride"], rank, sizes)
    pads, gaps = _several(node["padding"], rank), _several(node["dilation"], rank)
    extents = shape[-rank:]
    value = node[node.first]
    whole = sizes  # what is beyond the image is in no window, and nothing is padded for it
    sizes = [min(k, (e + p - 1) // g + 1) for k, e, p, g in zip(sizes, extents, pads, gaps)]
    needs = [
        (n - 1) * s + (k - 1) * g + 1 - e - p
        for n, s, k, g, e, p in zip(found[-rank:], steps, sizes, gaps, extents, pads)
    ]
    dtype = node.dtype()
    if not any(user.args[1] == 1 for user in node.fx.users) and len(shape) == rank + 2 and "float" in dtype:
        plain = getattr(op.nn, f"max_pool{rank}d")
        padded = node["ceil_mode"] or sizes != whole
        after = [max(0 if sizes != whole else p, n) if padded else p for p, n in zip(pads, needs)]
        pooled = node.emit(plain(value, sizes, steps, [*pads, *after], gaps, False))
        if tuple(int(one) for one in pooled.ty.shape) == found:
            return (pooled, None)
    kind = {"float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)
    reducer = first_of("max")

    def compute(data: Any) -> Any:
        over = [te.reduce_axis((0, tirx.IntImm("int64", size)), name=f"k{k}") for k, size in enumerate(sizes)]

        def element(*place: Any) -> Any:
            lead, spatial = place[:-rank], place[-rank:]
            inside, safe = _inside(_places(spatial, over, steps, gaps, pads), extents)
            flat: Any = tirx.const(0, "int64")
            for one, extent in zip(safe, extents):
                flat = flat * extent + one
            where = tirx.Select(inside, flat.astype("int64"), tirx.max_value("int64"))
            return reducer((where, tirx.Select(inside, data(*lead, *safe), least(kind))), axis=over)

        pair = te.compute(long(found), element, name="found")
        return [copied(one) for one in pair]

    pair = node.compute(compute, node.cast(value, kind))
    places, values = (node.emit(relax.TupleGetItem(pair, k)) for k in (0, 1))
    return (node.cast(values, dtype), places)


def average_pool(node: Node) -> Any:
    """Means of windows; TVM's pooling where the divisor is the window's size."""
    shape, found, dtype = node.shape_of(node.first), node.shape(), node.dtype()
    rank = next(k for k in (1, 2, 3) if f"{k}d" in node.name)
    sizes = _several(node["kernel_size"], rank)
    steps, pads = _several(node["stride"], rank, sizes), _several(node["padding"], rank)
    padded, divisor = bool(node["count_include_pad"]), node.arguments.get("divisor_override")
    extents, value = shape[-rank:], node[node.first]
    beyond = any(
        (n - 1) * s + k > e + 2 * p for n, s, k, e, p in zip(found[-rank:], steps, sizes, extents, pads)
    )
    if divisor is None and not beyond and len(shape) == rank + 2 and "float" in dtype:
        plain = getattr(op.nn, f"avg_pool{rank}d")
        pooled = node.emit(
            plain(value, sizes, steps, [*pads, *pads], [1] * rank, False, count_include_pad=padded)
        )
        if tuple(int(one) for one in pooled.ty.shape) == found:
            return pooled
    kind = {"float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)
    counts = np.ones((), np.int64)
    for n, s, k, e, p in zip(found[-rank:], steps, sizes, extents, pads):
        start = np.arange(n) * s - p
        end = np.minimum(start + k, e + p)
        low, high = (start, end) if padded else (np.maximum(start, 0), np.minimum(end, e))
        counts = counts[..., None] * (high - low)

    def compute(data: Any) -> Any:
        over = [te.reduce_axis((0, tirx.IntImm("int64", size)), name=f"k{k}") for k, size in enumerate(sizes)]

        def element(*place: Any) -> Any:
            inside, safe = _inside(_places(place[-rank:], over, steps, [1] * rank, pads), extents)
            return te.sum(tirx.Select(inside, data(*place[:-rank], *safe), tirx.const(0, kind)), axis=over)

        return te.compute(long(found), element, name="sums")

    sums = node.compute(compute, node.cast(value, kind))
    divided = node.const(counts if divisor is None else divisor, kind)
    by = op.divide if "float" in kind else op.floor_divide
    return node.cast(node.emit(by(sums, divided)), dtype)


def adaptive_max(node: Node) -> Any:
    """Maxima of as many windows as are wanted, with their places."""
    shape, found, dtype = node.shape_of(node.first), node.shape(0), node.dtype()
    rank = 3 if "3d" in node.name else 2
    extents, wanted = shape[-rank:], found[-rank:]
    reach = [
        max(-(-(n + 1) * e // w) - n * e // w for n in range(w)) if w else 1 for e, w in zip(extents, wanted)
    ]
    reducer = first_of("max")
    kind = {"float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)

    def compute(data: Any) -> Any:
        over = [te.reduce_axis((0, tirx.IntImm("int64", size)), name=f"k{k}") for k, size in enumerate(reach)]

        def element(*place: Any) -> Any:
            inside: Any = tirx.const(True, "bool")
            flat: Any = tirx.const(0, "int64")
            own = []
            for at, k, e, w in zip(place[-rank:], over, extents, wanted):
                start, end = tirx.floordiv(at * e, w), tirx.floordiv((at + 1) * e + w - 1, w)
                inside = tirx.And(inside, start + k < end)
                own.append(te.min(start + k, e - 1))
                flat = flat * e + own[-1]
            where = tirx.Select(inside, flat.astype("int64"), tirx.max_value("int64"))
            return reducer((where, tirx.Select(inside, data(*place[:-rank], *own), least(kind))), axis=over)

        pair = te.compute(long(found), element, name="found")
        return [copied(one) for one in pair]

    pair = node.compute(compute, node.cast(node[node.first], kind))
    places, values = (node.emit(relax.TupleGetItem(pair, k)) for k in (0, 1))
    return (node.cast(values, dtype), places)


def fractional_max(node: Node) -> Any:
    """Maxima of windows at places that given random samples choose."""
    shape, found, dtype = node.shape_of(node.first), node.shape(0), node.dtype()
    rank = 3 if "3d" in node.name else 2
    extents, wanted = shape[-rank:], found[-rank:]
    sizes = _several(node["kernel_size"], rank)
    reducer = first_of("max")
    samples = node["random_samples"]
    lead = shape[:-rank]
    if len(lead) != 2:
        node.refuse("images without a batch are not supported")

    def compute(data: Any, random: Any) -> Any:
        over = [te.reduce_axis((0, tirx.IntImm("int64", size)), name=f"k{k}") for k, size in enumerate(sizes)]
        kind = str(random.dtype)

        def element(*place: Any) -> Any:
            own, flat = [], tirx.const(0, "int64")
            for axis, (at, k, e, w, size) in enumerate(zip(place[-rank:], over, extents, wanted, sizes)):
                last = tirx.const(e - size, "int64")
                sample = random(place[0], place[1], rank - 1 - axis if rank == 2 else axis)
                start = last
                if w > 1:
                    alpha = tirx.const((e - size) / (w - 1), kind)
                    moved = tirx.Cast("int64", (tirx.Cast(kind, at) + sample) * alpha) - tirx.Cast(
                        "int64", sample * alpha
                    )
                    start = tirx.Select(tirx.EQ(at, tirx.const(w - 1, "int64")), last, moved)
                own.append(start + k)
                flat = flat * e + own[-1]
            return reducer((flat.astype("int64"), data(*place[:-rank], *own)), axis=over)

        pair = te.compute(long(found), element, name="found")
        return [copied(one) for one in pair]

    pair = node.compute(compute, node[node.first], samples)
    places, values = (node.emit(relax.TupleGetItem(pair, k)) for k in (0, 1))
    return (node.cast(values, dtype), places)


def adaptive_average(node: Node) -> Any:
    """Means of as many windows as are wanted; TVM's where all are equal or the image has a batch."""
    shape, found, dtype = node.shape_of(node.first), node.shape(), node.dtype()
    rank = next(k for k in (1, 2, 3) if f"{k}d" in node.name)
    if len(shape) == rank + 2 and all(e % w == 0 for e, w in zip(shape[-rank:], found[-rank:])):
        plain = getattr(op.nn, f"adaptive_avg_pool{rank}d")
        return node.emit(plain(node[node.first], list(found[-rank:])))
    value = node.cast(node[node.first], "float32" if dtype in ("float16", "bfloat16") else dtype)
    kind = node.dtype_of(value)
    for k, (e, w) in enumerate(zip(shape[-rank:], found[-rank:])):
        weights = np.zeros((w, e))
        for n in range(w):
            start, end = n * e // w, -(-(n + 1) * e // w)
            weights[n, start:end] = 1 / (end - start)
        axis = len(shape) - rank + k
        moved = [j for j in range(len(shape)) if j != axis] + [axis]
        back = [moved.index(j) for j in range(len(shape))]
        value = node.emit(op.permute_dims(value, moved))
        value = node.emit(op.matmul(value, node.const(weights.T, kind), out_dtype=kind))
        value = node.emit(op.permute_dims(value, back))
    return node.cast(value, dtype)


CONVERTERS: dict[str, Convert] = {
    "aten.max_pool2d_with_indices.default": max_pool,
    "aten.max_pool3d_with_indices.default": max_pool,
    **{f"aten.avg_pool{k}d.default": average_pool for k in (1, 2, 3)},
    "aten.adaptive_max_pool2d.default": adaptive_max,
    "aten.adaptive_max_pool3d.default": adaptive_max,
    "aten.fractional_max_pool2d.default": fractional_max,
    "aten.fractional_max_pool3d.default": fractional_max,
    **{f"aten._adaptive_avg_pool{k}d.default": adaptive_average for k in (1, 2, 3)},
}
