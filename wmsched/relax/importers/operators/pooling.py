"""Pooling: automatic padding, rounding up, dilation, places of maxima, and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx

from wmsched.relax.importers.operators.elementwise import higher
from wmsched.relax.importers.operators.node import Node, is_float, least
from wmsched.relax.importers.operators.stock import stock

op = relax.op


@dataclass(frozen=True)
class Windows:
    """Windows of a pooling operator.

    Attributes
    ----------
    sizes, steps, dilations, before, after, found : tuple of int
        By spatial axis: the window, its step, padding at both ends, and the number of windows.
    in_padding : bool
        Whether a window goes beyond the padded image.
    """

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    found: tuple[int, ...]
    in_padding: bool


EIGHT_BITS = ("int8", "uint8")  # `wmsched.relax.int8` knows these as Relax's own operator


def windows_of(node: Node) -> Windows:
    """Return the windows as the standard defines them."""
    shape = node.shape()[2:]
    rank = len(shape)
    sizes = tuple(node.numbers("kernel_shape") or ())
    if len(sizes) != rank or rank not in (1, 2, 3):
        node.refuse(f"windows of {len(sizes)} dimensions over {rank} are not supported")
    steps = tuple(node.numbers("strides") or (1,) * rank)
    dilations = tuple(node.numbers("dilations") or (1,) * rank)
    pads = node.numbers("pads") or [0] * (2 * rank)
    auto, up = node.text("auto_pad", "NOTSET"), bool(node.integer("ceil_mode"))
    before, after, found = list(pads[:rank]), list(pads[rank:]), []
    beyond = False
    for k, extent in enumerate(shape):
        reach = (sizes[k] - 1) * dilations[k] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-extent // steps[k])
            total = max((count - 1) * steps[k] + reach - extent, 0)
            small, large = total // 2, total - total // 2
            before[k], after[k] = (small, large) if auto == "SAME_UPPER" else (large, small)
        else:
            if auto == "VALID":
                before[k] = after[k] = 0
            room = extent + before[k] + after[k] - reach
            if room < 0:
                node.refuse(f"its window of {reach} is larger than the padded image of {extent}")
            count = (-(-room // steps[k]) if up else room // steps[k]) + 1
            if up and (count - 1) * steps[k] >= extent + before[k]:
                count -= 1  # a window that starts beyond the image
        beyond |= (count - 1) * steps[k] + reach > extent + before[k] + after[k]
        found.append(count)
    return Windows(sizes, steps, dilations, tuple(before), tuple(after), tuple(found), beyond)


def _plain(node: Node, windows: Windows, name: str, **more: Any) -> Any:
    rank = len(windows.sizes)
    return node.emit(
        getattr(op.nn, f"{name}{rank}d")(
            node.inputs[0],
            list(windows.sizes),
            list(windows.steps),
            [*windows.before, *windows.after],
            list(windows.dilations),
            False,
            **more,
        )
    )


def _over(node: Node, value: Any, windows: Windows, reduce: Callable[..., Any], name: str) -> Any:
    """Return a reduction of windows: `reduce` of (place in the image, inside, reduce axes, image)."""
    shape = node.shape()

    def compute(data: Any) -> Any:
        over = [te.reduce_axis((0, size), name=f"k{k}") for k, size in enumerate(windows.sizes)]

        def element(*place: Any) -> Any:
            at = [
                place[2 + k] * windows.steps[k] + over[k] * windows.dilations[k] - windows.before[k]
                for k in range(len(over))
            ]
            inside: Any = tirx.const(True, "bool")
            for one, extent in zip(at, shape[2:]):
                inside = tirx.And(inside, tirx.And(one >= 0, one < extent))
            safe = [te.max(te.min(one, extent - 1), 0) for one, extent in zip(at, shape[2:])]
            return reduce(data(place[0], place[1], *safe), inside, safe, place, over)

        found = te.compute((*shape[:2], *windows.found), element, name=name)
        if isinstance(found, (list, tuple)):
            return [_copy(one, f"{name}_{n}") for n, one in enumerate(found)]
        return found

    return node.compute(compute, value)


def _copy(tensor: Any, name: str) -> Any:
    return te.compute(tensor.shape, lambda *place: tensor(*place), name=name)


def max_pool(node: Node) -> Any:
    """MaxPool; with its second output, the places of the maxima."""
    windows, dtype, shape = windows_of(node), node.dtype(), node.shape()
    if node.wants(1):
        return _with_places(node, windows)
    if (is_float(dtype) or dtype in EIGHT_BITS) and not windows.in_padding:
        return _plain(node, windows, "max_pool")
    reducer = te.comm_reducer(higher, lambda kind: least(str(kind)), name="highest")

    def reduce(value: Any, inside: Any, at: Any, place: Any, over: Any) -> Any:
        return reducer(tirx.Select(inside, value, least(dtype)), axis=over)

    del shape
    return _over(node, node.inputs[0], windows, reduce, "max_pool")


def _with_places(node: Node, windows: Windows) -> Any:
    shape, dtype = node.shape(), node.dtype()
    by_column = bool(node.integer("storage_order"))
    beyond = tirx.max_value("int64")

    def combine(x: Any, y: Any) -> Any:
        (i, a), (j, b) = x, y
        mine = tirx.Or(a > b, tirx.And(tirx.EQ(a, b), i < j))
        if is_float(dtype):
            mine = tirx.Or(mine, tirx.And(te.isnan(a), tirx.Or(tirx.Not(te.isnan(b)), i < j)))
        return tirx.Select(mine, i, j), tirx.Select(mine, a, b)

    reducer = te.comm_reducer(combine, lambda i, a: (beyond, least(str(a))), name="highest")

    def reduce(value: Any, inside: Any, at: Any, place: Any, over: Any) -> Any:
        flat: Any = tirx.const(0, "int64")
        order = list(zip(at, shape[2:]))
        for one, extent in reversed(order) if by_column else order:
            flat = flat * extent + one
        row = (place[0] * shape[1] + place[1]) * math.prod(shape[2:])
        where = tirx.Select(inside, (row + flat).astype("int64"), beyond)
        return reducer((where, tirx.Select(inside, value, least(dtype))), axis=over)

    pair = _over(node, node.inputs[0], windows, reduce, "max_pool")
    places, values = (node.emit(relax.TupleGetItem(pair, k)) for k in (0, 1))
    return [values, places]


def average_pool(node: Node) -> Any:
    """AveragePool: what lies beyond the padded image never counts."""
    windows, dtype = windows_of(node), node.dtype()
    padded = bool(node.integer("count_include_pad"))
    plain = not windows.in_padding and all(one == 1 for one in windows.dilations)
    if plain:
        return _plain(node, windows, "avg_pool", count_include_pad=padded)
    kind = "float32" if dtype in ("float16", "bfloat16") else dtype
    total = _sum(node, node.cast(node.inputs[0], kind), windows, kind)
    count = node.const(_counts(node.shape()[2:], windows, padded), kind)
    return node.cast(node.emit(op.divide(total, count)), dtype)


def _counts(shape: tuple[int, ...], windows: Windows, padded: bool) -> Any:
    """Return how many elements each window has, an array of the windows' shape."""
    import numpy as np

    found: Any = np.ones((), np.int64)
    for k, extent in enumerate(shape):
        start = np.arange(windows.found[k]) * windows.steps[k] - windows.before[k]
        at = start[:, None] + np.arange(windows.sizes[k]) * windows.dilations[k]
        low, high = (-windows.before[k], extent + windows.after[k]) if padded else (0, extent)
        found = found[..., None] * ((at >= low) & (at < high)).sum(1)
    return np.maximum(found, 1)


def _sum(node: Node, value: Any, windows: Windows, kind: str) -> Any:
    def reduce(element: Any, inside: Any, at: Any, place: Any, over: Any) -> Any:
        return te.sum(tirx.Select(inside, element, tirx.const(0, kind)), axis=over)

    return _over(node, value, windows, reduce, "sum_pool")


def lp_pool(node: Node) -> Any:
    """LpPool: the p-th root of a window's sum of p-th powers."""
    windows, dtype, p = windows_of(node), node.dtype(), node.integer("p", 2)
    kind = "float32" if dtype in ("float16", "bfloat16") else dtype
    x = node.cast(node.inputs[0], kind)
    powers = (
        node.emit(op.multiply(x, x))
        if p == 2
        else node.emit(op.power(node.emit(op.abs(x)), node.const(p, kind)))
    )
    total = _sum(node, powers, windows, kind)
    root = op.sqrt(total) if p == 2 else op.power(total, node.const(1.0 / p, kind))
    return node.cast(node.emit(root), dtype)


def max_unpool(node: Node) -> Any:
    """MaxUnpool: values at their places, zeros elsewhere."""
    shape = node.shape()
    rank = len(shape) - 2
    sizes = node.numbers("kernel_shape") or [1] * rank
    steps = node.numbers("strides") or [1] * rank
    pads = node.numbers("pads") or [0] * (2 * rank)
    found = [(shape[2 + k] - 1) * steps[k] + sizes[k] - pads[k] - pads[rank + k] for k in range(rank)]
    inferred = [*shape[:2], *found]
    wanted = inferred
    if node.has(2):
        wanted = [int(one) for one in node.constant(2, "the shape of its result").reshape(-1)]
    zeros = node.emit(op.zeros((math.prod(inferred),), node.dtype()))
    flat = node.emit(
        op.scatter_elements(
            zeros, node.reshape(node.inputs[1], (-1,)), node.reshape(node.inputs[0], (-1,)), axis=0
        )
    )
    placed = node.reshape(flat, inferred)
    if wanted == inferred:
        return placed
    if len(wanted) != len(inferred) or any(a < b for a, b in zip(wanted, inferred)):
        node.refuse(f"the shape of its result is {wanted}, and its windows make {inferred}")
    widths = [number for a, b in zip(wanted, inferred) for number in (0, a - b)]
    return node.emit(op.nn.pad(placed, widths))


def roi_align(node: Node) -> Any:
    """RoiAlign with means; half a pixel is taken off after the scale, as the standard has it."""
    mode = node.text("mode", "avg")
    if mode != "avg":
        node.refuse(f"the mode {mode!r} is not supported; 'avg' is")
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    half = node.text("coordinate_transformation_mode", default) == "half_pixel"
    scale = node.number("spatial_scale", 1.0)
    rois, kind = node.inputs[1], node.dtype(1)
    if half:
        rois = node.emit(op.subtract(rois, node.const(0.5 / scale, kind)))
    batch = node.cast(node.emit(op.expand_dims(node.inputs[2], 1)), kind)
    return node.emit(
        op.vision.roi_align(
            node.inputs[0],
            node.emit(op.concat([batch, rois], 1)),
            pooled_size=(node.integer("output_height", 1), node.integer("output_width", 1)),
            spatial_scale=scale,
            sample_ratio=node.integer("sampling_ratio"),
            aligned=half,
            layout="NCHW",
            mode=mode,
        )
    )


def conv_transpose(node: Node) -> Any:
    """ConvTranspose: a given shape of the result sets the padding."""
    wanted = node.numbers("output_shape")
    if wanted is None:
        return stock("ConvTranspose")(node)
    shape = node.shape()[2:]
    rank = len(shape)
    wanted = wanted[-rank:]
    steps = node.numbers("strides") or [1] * rank
    dilations = node.numbers("dilations") or [1] * rank
    sizes = node.numbers("kernel_shape") or list(node.shape(1)[2:])
    extra = node.numbers("output_padding") or [0] * rank
    upper = node.text("auto_pad", "NOTSET") == "SAME_UPPER"
    before, after = [], []
    for k in range(rank):
        full = steps[k] * (shape[k] - 1) + extra[k] + (sizes[k] - 1) * dilations[k] + 1
        total = full - wanted[k]
        if total < 0:
            extra[k] -= total
            total = 0
            if extra[k] >= max(steps[k], dilations[k]):
                node.refuse(f"its result of {wanted[k]} is larger than what it reaches, {full}")
        small, large = total // 2, total - total // 2
        first, last = (small, large) if upper else (large, small)
        before.append(first)
        after.append(last)
    left = {k: v for k, v in node.attributes.items() if k not in ("output_shape", "auto_pad")}
    node.attributes = left | {"pads": (*before, *after), "output_padding": tuple(extra)}
    return stock("ConvTranspose")(node)


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    "AveragePool": average_pool,
    "ConvTranspose": conv_transpose,
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
    "RoiAlign": roi_align,
}
