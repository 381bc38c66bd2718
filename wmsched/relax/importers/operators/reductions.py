"""Reductions: empty sets, NaN and infinities, truths, unsigned numbers, ties, axes as an input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from wmsched.relax.importers.operators.elementwise import higher, lower, pointwise, quotient
from wmsched.relax.importers.operators.node import Node, greatest, is_float, least

op = relax.op
SHORT = ("float16", "bfloat16")


def axes_of(node: Node) -> list[int]:
    """Return the reduced axes, from the front; [] where none is reduced."""
    rank = len(node.shape())
    axes = node.numbers("axes")
    if axes is None and node.has(1):
        axes = [int(one) for one in node.constant(1, "what axes it reduces").reshape(-1)]
    if not axes:
        return [] if node.integer("noop_with_empty_axes") else list(range(rank))
    return sorted({node.axis(one, rank) for one in axes})


def _reduced_shape(node: Node, axes: list[int]) -> tuple[list[int], bool]:
    """Return the result's shape and whether sets of no element are reduced."""
    shape, keep = node.shape(), node.integer("keepdims", 1)
    found = [1 if k in axes else extent for k, extent in enumerate(shape) if keep or k not in axes]
    return found, any(shape[k] == 0 for k in axes)


def of_sets(
    empty: float, reduce: Callable[[Node, Any, list[int], bool], Any], *, in_float: bool = False
) -> Callable[[Node], Any]:
    """Return a converter of a reduction.

    Parameters
    ----------
    empty : float
        Result of no element.
    reduce : callable (node, value, axes, keepdims)
    in_float : bool
        Whether whole numbers are reduced as float64.
    """

    def convert(node: Node) -> Any:
        axes, dtype = axes_of(node), node.dtype()
        shape, none = _reduced_shape(node, axes)
        if 0 in shape:
            return node.empty(shape, node.inputs[0])
        if none:
            return _filled(node, shape, empty, dtype)
        value = node.inputs[0]
        if in_float and not is_float(dtype):
            value = node.cast(value, "float64")
        elif in_float and dtype in SHORT:
            value = node.cast(value, "float32")
        found = reduce(node, value, axes, bool(node.integer("keepdims", 1)))
        return node.cast(found, dtype)

    return convert


def _filled(node: Node, shape: list[int], value: float, dtype: str) -> Any:
    """Return a constant; infinities of whole numbers are their bounds."""
    if math.isinf(value) and not is_float(dtype):
        if dtype == "bool":
            value = float(value > 0)
        else:
            bounds = np.iinfo(dtype)
            value = bounds.max if value > 0 else bounds.min
    return node.const(np.full(shape, value), dtype)


def _sum(node: Node, value: Any, axes: list[int], keep: bool) -> Any:
    return node.emit(op.sum(value, axes, keep)) if axes else value


def _mean(node: Node, value: Any, axes: list[int], keep: bool) -> Any:
    dtype = str(value.ty.dtype)
    if is_float(dtype):
        return node.emit(op.mean(value, axes, keep)) if axes else value
    count = math.prod(node.shape()[k] for k in axes)
    total = _sum(node, node.cast(value, "int64"), axes, keep)
    return node.compute(pointwise(quotient), total, node.const(count, "int64"))


def _product(node: Node, value: Any, axes: list[int], keep: bool) -> Any:
    return node.emit(op.prod(value, axes, keep)) if axes else value


def _square(node: Node, value: Any) -> Any:
    return node.emit(op.multiply(value, value))


def _log_sum_exp(node: Node, value: Any, axes: list[int], keep: bool) -> Any:
    if not axes:
        return value
    dtype = str(value.ty.dtype)
    top = extreme(higher, least)(node, value, axes, True)

    def finite(x: Any) -> Any:
        big = tirx.const(float("inf"), dtype)
        return tirx.Select(tirx.Or(tirx.EQ(x, big), tirx.EQ(x, -big)), tirx.const(0, dtype), x)

    top = node.compute(pointwise(finite), top)
    total = node.emit(op.sum(node.emit(op.exp(node.emit(op.subtract(value, top)))), axes, True))
    found = node.emit(op.add(node.emit(op.log(total)), top))
    return found if keep else node.emit(op.squeeze(found, axes))


def extreme(choose: Callable[[Any, Any], Any], start: Callable[[str], Any]) -> Callable[..., Any]:
    """Return a reduction to the largest or smallest element; NaN where one is."""

    def reduce(node: Node, value: Any, axes: list[int], keep: bool) -> Any:
        dtype = str(value.ty.dtype)
        if not axes:
            return value
        if dtype == "bfloat16":
            return node.cast(reduce(node, node.cast(value, "float32"), axes, keep), dtype)
        if dtype == "bool":
            return node.cast(reduce(node, node.cast(value, "int8"), axes, keep), "bool")
        reducer = te.comm_reducer(choose, lambda kind: start(str(kind)), name="extreme")

        def compute(data: Any) -> Any:
            return over_axes(data, axes, keep, lambda element, over: reducer(element, axis=over))

        return node.compute(compute, value)

    return reduce


def over_axes(data: Any, axes: list[int], keep: bool, reduce: Callable[[Any, list[Any]], Any]) -> Any:
    """Return a tensor expression that reduces some axes of a tensor."""
    extents = [int(extent) for extent in data.shape]
    over = {k: te.reduce_axis((0, extents[k]), name=f"k{k}") for k in axes}
    shape = [1 if k in over else n for k, n in enumerate(extents) if keep or k not in over]

    def element(*place: Any) -> Any:
        left = list(place)
        own = []
        for k in range(len(extents)):
            if k in over:
                own.append(over[k])
                if keep:
                    left.pop(0)
            else:
                own.append(left.pop(0))
        return reduce(data(*own), list(over.values()))

    return te.compute(shape, element, name="reduced")


def is_before(choose: str, a: Any, b: Any) -> Any:
    """Whether a comes before b in an ordering with NaN first."""
    better = a > b if choose == "max" else a < b
    if not is_float(str(a.ty.dtype)):
        return better
    return tirx.Or(better, tirx.And(te.isnan(a), tirx.Not(te.isnan(b))))


def first_of(choose: str, last: bool = False) -> Any:
    """Return a reducer of (place, element) to the first of the largest or smallest ones, NaN before all."""

    def combine(x: Any, y: Any) -> Any:
        (i, a), (j, b) = x, y
        first = is_before(choose, a, b)
        even = tirx.And(tirx.Not(first), tirx.Not(is_before(choose, b, a)))
        mine = tirx.Or(first, tirx.And(even, i > j if last else i < j))
        return tirx.Select(mine, i, j), tirx.Select(mine, a, b)

    start = least if choose == "max" else greatest
    beyond = tirx.const(-1, "int64") if last else tirx.max_value("int64")
    return te.comm_reducer(combine, lambda i, a: (beyond, start(str(a))), name="arg")


def arg(choose: str) -> Callable[[Node], Any]:
    """Return a converter of ArgMax or ArgMin: the first of equals, or the last; NaN is found."""

    def convert(node: Node) -> Any:
        shape = node.shape()
        axis = node.axis(node.integer("axis"), len(shape))
        keep, last = bool(node.integer("keepdims", 1)), bool(node.integer("select_last_index"))
        if not shape or shape[axis] == 0:
            node.refuse("no element is there to be found")
        reducer = first_of(choose, last)

        def compute(data: Any) -> Any:
            over = te.reduce_axis((0, shape[axis]), name="k")
            rest = [1 if k == axis else n for k, n in enumerate(shape) if keep or k != axis]

            def element(*place: Any) -> Any:
                own = list(place)
                if keep:
                    own[axis] = over
                else:
                    own.insert(axis, over)
                return reducer((over.var.astype("int64"), data(*own)), axis=over)

            found = te.compute(rest, element, name="found")
            return te.compute(rest, lambda *place: found[0](*place), name="places")

        return node.compute(compute, node.inputs[0])

    return convert


def top(node: Node) -> Any:
    """TopK: NaN counts as the largest, and never misleads the sort; unsigned numbers keep their order."""
    if node.has(1):
        count = int(node.constant(1, "how many it takes").reshape(-1)[0])
    else:
        count = node.integer("k")
    data, dtype, shape = node.inputs[0], node.dtype(), node.shape()
    axis = node.axis(node.integer("axis", -1), len(shape))
    largest = bool(node.integer("largest", 1))
    if count > shape[axis]:
        node.refuse(f"it takes {count} of {shape[axis]} elements")
    keys = data
    if is_float(dtype):
        keys = node.compute(
            pointwise(lambda x: tirx.Select(te.isnan(x), tirx.const(float("inf"), dtype), x)), data
        )
        keys = node.cast(keys, "float32") if dtype in SHORT else keys
    elif dtype in ("uint32", "uint16", "uint8", "int8", "int16", "bool"):
        keys = node.cast(data, "int64")
    elif dtype == "uint64":
        sign = tirx.const(1 << 63, "uint64")
        keys = node.compute(pointwise(lambda x: tirx.reinterpret("int64", tirx.bitwise_xor(x, sign))), data)
    places = node.emit(op.topk(keys, k=count, axis=axis, ret_type="indices", largest=largest, dtype="int64"))
    return [node.emit(op.gather_elements(data, places, axis)), places]


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    "ArgMax": arg("max"),
    "ArgMin": arg("min"),
    "ReduceSum": of_sets(0.0, _sum),
    "ReduceMean": of_sets(math.nan, _mean),
    "ReduceProd": of_sets(1.0, _product),
    "ReduceMax": of_sets(-math.inf, extreme(higher, least)),
    "ReduceMin": of_sets(math.inf, extreme(lower, greatest)),
    "ReduceSumSquare": of_sets(0.0, lambda node, x, axes, keep: _sum(node, _square(node, x), axes, keep)),
    "ReduceL1": of_sets(0.0, lambda node, x, axes, keep: _sum(node, node.emit(op.abs(x)), axes, keep)),
    "ReduceL2": of_sets(
        0.0,
        lambda node, x, axes, keep: node.emit(op.sqrt(_sum(node, _square(node, x), axes, keep))),
        in_float=True,
    ),
    "ReduceLogSum": of_sets(
        -math.inf, lambda node, x, axes, keep: node.emit(op.log(_sum(node, x, axes, keep))), in_float=True
    ),
    "ReduceLogSumExp": of_sets(-math.inf, _log_sum_exp, in_float=True),
    "TopK": top,
}
