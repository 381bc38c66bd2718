"""Orders: sorting with NaN last, the k-th element, medians, modes, and places in a sorted sequence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from wmsched.relax.importers.aten.elementwise import SHORT, number
from wmsched.relax.importers.aten.node import Node, copied, is_float, long
from wmsched.relax.importers.operators.elementwise import pointwise

op = relax.op
Convert = Callable[[Node], Any]


def _keys(node: Node, value: Any) -> Any:
    """Return what TVM's sort orders as PyTorch orders the elements: NaN counts as the largest."""
    dtype = node.dtype_of(value)
    if is_float(dtype):
        wide = node.cast(value, "float32") if dtype in SHORT else value
        return node.compute(pointwise(lambda x: tirx.Select(te.isnan(x), number(float("inf"), x), x)), wide)
    if dtype in ("bool", "uint8", "int8", "int16"):
        return node.cast(value, "int32")
    if dtype not in ("int32", "int64"):
        node.refuse(f"an order of elements of the type {dtype} is not supported")
    return value


def _ordered(node: Node, value: Any, axis: int, descending: bool) -> tuple[Any, Any]:
    """Return the elements in order along an axis, and their places; equal ones stay in order."""
    places = node.emit(op.argsort(_keys(node, value), axis=axis, descending=descending, dtype="int64"))
    return node.emit(op.gather_elements(value, places, axis)), places


def sort(node: Node) -> Any:
    value, rank = node[node.first], len(node.shape_of(node.first))
    if not rank:
        return (value, node.const(0, "int64"))
    return _ordered(node, value, node.axis(node["dim"], rank), bool(node["descending"]))


def places_of_order(node: Node) -> Any:
    return sort(node)[1]


def top(node: Node) -> Any:
    """Topk: the first of an order."""
    value, shape = node[node.first], node.shape_of(node.first)
    if not shape:
        return (value, node.const(0, "int64"))
    axis = node.axis(node["dim"], len(shape))
    places = node.emit(
        op.topk(
            _keys(node, value),
            k=int(node["k"]),
            axis=axis,
            ret_type="indices",
            largest=bool(node["largest"]),
            dtype="int64",
        )
    )
    return (node.emit(op.gather_elements(value, places, axis)), places)


def _at(node: Node, ordered: tuple[Any, Any], place: int, axis: int) -> tuple[Any, Any]:
    """Return the element and its place at one place of an order."""
    index = relax.const(place, "int64")
    keep = bool(node.arguments.get("keepdim", False))
    found = [node.emit(op.take(one, index, axis=axis)) for one in ordered]
    return tuple(node.emit(op.expand_dims(one, axis)) if keep else one for one in found)


def kth(node: Node) -> Any:
    value, shape = node[node.first], node.shape_of(node.first)
    if not shape:
        return (value, node.const(0, "int64"))
    axis = node.axis(node["dim"], len(shape))
    return _at(node, _ordered(node, value, axis, False), int(node["k"]) - 1, axis)


def median(node: Node) -> Any:
    """Median, the lower of two; NaN where one is, unless NaN are passed over."""
    value, shape = node[node.first], node.shape_of(node.first)
    flat = "dim" not in node.arguments
    if not shape:
        return value if flat else (value, node.const(0, "int64"))
    if flat:
        value, shape = node.reshape(value, (math.prod(shape),)), (math.prod(shape),)
    axis = 0 if flat else node.axis(node["dim"], len(shape))
    passes = "nanmedian" in node.name
    values, places = _ordered(node, value, axis, False)
    dtype = node.dtype_of(value)
    keep = bool(node.arguments.get("keepdim", False))
    rest = [1 if k == axis else n for k, n in enumerate(shape) if keep or k != axis]

    def compute(given: Any, ordered: Any) -> Any:
        over = te.reduce_axis((0, tirx.IntImm("int64", shape[axis])), name="k")

        def own(place: tuple[Any, ...], at: Any) -> list[Any]:
            found = list(place)
            if keep:
                found[axis] = at
            else:
                found.insert(axis, at)
            return found

        def missing(*place: Any) -> Any:
            x = given(*own(place, over))
            none = te.isnan(x) if is_float(dtype) else tirx.const(False, "bool")
            return te.sum(tirx.Cast("int64", none), axis=over)

        count = te.compute(long(rest), missing, name="missing")
        last = tirx.const(shape[axis] - 1, "int64")

        def which(*place: Any) -> Any:
            none = count(*place)
            if passes:
                return tirx.floordiv(te.max(last - none, tirx.const(0, "int64")), tirx.const(2, "int64"))
            middle = tirx.const((shape[axis] - 1) // 2, "int64")
            return tirx.Select(none > tirx.const(0, "int64"), last + tirx.const(1, "int64") - none, middle)

        at = te.compute(long(rest), which, name="which")
        return te.compute(long(rest), lambda *place: ordered(*own(place, at(*place))), name="median")

    found = node.compute(compute, value, values)
    return found if flat else (found, node.compute(compute, value, places))


def mode(node: Node) -> Any:
    """Mode: the most frequent element, of several the smallest, and its last place."""
    value, shape = node[node.first], node.shape_of(node.first)
    if not shape:
        return (value, node.const(0, "int64"))
    axis, dtype = node.axis(node["dim"], len(shape)), node.dtype_of(value)
    keep = bool(node["keepdim"])
    rest = [1 if k == axis else n for k, n in enumerate(shape) if keep or k != axis]
    size = tirx.IntImm("int64", shape[axis])
    kind = {"bool": "int8", "float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)

    def compute(data: Any) -> Any:
        inner, over = te.reduce_axis((0, size), name="j"), te.reduce_axis((0, size), name="k")

        def equal(*place: Any) -> Any:
            other = list(place)
            other[axis] = inner
            return te.sum(tirx.Cast("int64", tirx.EQ(data(*place), data(*other))), axis=inner)

        counts = te.compute(long(shape), equal, name="counts")

        def combine(x: Any, y: Any) -> Any:
            (n, a, i), (m, b, j) = x, y
            mine = tirx.Or(n > m, tirx.And(tirx.EQ(n, m), tirx.Or(a < b, tirx.And(tirx.EQ(a, b), i > j))))
            return tirx.Select(mine, n, m), tirx.Select(mine, a, b), tirx.Select(mine, i, j)

        def start(n: Any, a: Any, i: Any) -> Any:
            del n, i
            return tirx.const(-1, "int64"), tirx.const(0, str(a)), tirx.const(-1, "int64")

        reducer = te.comm_reducer(combine, start, name="mode")

        def element(*place: Any) -> Any:
            own = list(place)
            if keep:
                own[axis] = over
            else:
                own.insert(axis, over)
            return reducer((counts(*own), data(*own), over.var.astype("int64")), axis=over)

        found = te.compute(long(rest), element, name="found")
        return [copied(one) for one in found[1:]]

    pair = node.compute(compute, node.cast(value, kind))
    found, places = (node.emit(relax.TupleGetItem(pair, k)) for k in (0, 1))
    return (node.cast(found, dtype), places)


def places_in(values: str, sequence: str) -> Convert:
    """Return a converter of places in a sorted sequence, which are counts of what comes before."""

    def convert(node: Node) -> Any:
        if node.has("sorter"):
            node.refuse("a sequence that a sorter puts in order is not supported")
        right = bool(node["right"]) or node.arguments.get("side") == "right"
        line = node.shape_of(sequence)
        if not isinstance(node[values], relax.Expr):
            node.arguments[values] = node.const(node[values], node.dtype_of(node[sequence]))
        dtype = node.dtype_of(node[values])
        given = (
            node.cast(node[values], node.dtype_of(node[sequence])) if not is_float(dtype) else node[values]
        )
        row = node.cast(node[sequence], dtype) if is_float(dtype) else node[sequence]

        def compute(data: Any, ordered: Any) -> Any:
            over = te.reduce_axis((0, tirx.IntImm("int64", line[-1])), name="k")

            def element(*place: Any) -> Any:
                batch = place[:-1] if len(line) > 1 else ()
                x, edge = data(*place), ordered(*batch, over)
                before = edge <= x if right else edge < x
                if is_float(dtype):
                    before = tirx.Or(before, tirx.And(te.isnan(x), tirx.Not(te.isnan(edge))))
                return te.sum(tirx.Cast("int64", before), axis=over)

            return te.compute(long(node.shape()), element, name="places")

        return node.cast(node.compute(compute, given, row), node.dtype())

    return convert


def histogram(node: Node) -> Any:
    """Histc: how many elements lie in each of equal parts between two bounds."""
    bins, low, high = int(node["bins"]), float(node["min"]), float(node["max"])
    count, dtype = math.prod(node.shape_of(node.first)), node.dtype()
    value = node.cast(node.reshape(node[node.first], (count,)), dtype)
    if low == high:
        low_e, high_e = (node.emit(getattr(op, word)(value)) for word in ("min", "max"))
    else:
        low_e, high_e = node.const(low, dtype), node.const(high, dtype)

    def compute(data: Any, least: Any, most: Any) -> Any:
        over = te.reduce_axis((0, tirx.IntImm("int64", count)), name="k")

        def element(part: Any) -> Any:
            x, a, b = data(over), least(), most()
            same = tirx.EQ(a, b)
            a, b = tirx.Select(same, a - number(1, x), a), tirx.Select(same, b + number(1, x), b)
            inside = tirx.And(x >= a, x <= b)
            at = tirx.Cast("int64", tirx.Select(inside, (x - a) * number(bins, x) / (b - a), number(0, x)))
            mine = tirx.And(inside, tirx.EQ(te.min(at, tirx.const(bins - 1, "int64")), part))
            return te.sum(tirx.Select(mine, number(1, x), number(0, x)), axis=over)

        return te.compute(long((bins,)), element, name="counts")

    return node.compute(compute, value, low_e, high_e)


CONVERTERS: dict[str, Convert] = {
    "aten.sort.default": sort,
    "aten.sort.stable": sort,
    "aten.argsort.default": places_of_order,
    "aten.argsort.stable": places_of_order,
    "aten.topk.default": top,
    "aten.kthvalue.default": kth,
    "aten.median.default": median,
    "aten.median.dim": median,
    "aten.nanmedian.default": median,
    "aten.nanmedian.dim": median,
    "aten.mode.default": mode,
    "aten.bucketize.Tensor": places_in("self", "boundaries"),
    "aten.bucketize.Scalar": places_in("self", "boundaries"),
    "aten.searchsorted.Tensor": places_in("self", "sorted_sequence"),
    "aten.searchsorted.Scalar": places_in("self", "sorted_sequence"),
    "aten.histc.default": histogram,
}
