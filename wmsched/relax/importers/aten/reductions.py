"""Reductions: truths, NaN, types, further results, and numbers of elements that PyTorch corrects."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from wmsched.relax.importers.aten.elementwise import SHORT, number
from wmsched.relax.importers.aten.node import Node, copied, is_float, long
from wmsched.relax.importers.operators.elementwise import higher, lower, pointwise
from wmsched.relax.importers.operators.node import greatest, least
from wmsched.relax.importers.operators.reductions import first_of, over_axes

op = relax.op
Convert = Callable[[Node], Any]


def _axes(node: Node, rank: int) -> list[int]:
    """Return the reduced axes, whatever the operator calls them."""
    for name in ("dim", "dims", "axis"):
        if name in node.arguments:
            return node.axes(node[name], rank)
    return list(range(rank))


def _keeps(node: Node) -> bool:
    return bool(node.arguments.get("keepdim", False))


def extreme(choose: Callable[[Any, Any], Any], start: Callable[[str], Any]) -> Convert:
    """Return a converter of a largest or smallest element; NaN where one is."""

    def convert(node: Node) -> Any:
        rank, dtype = len(node.shape_of(node.first)), node.dtype()
        axes = _axes(node, rank)
        value = node[node.first]
        if not axes:
            return value
        kind = {"bool": "int8", "float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)
        reducer = te.comm_reducer(choose, lambda word: start(str(word)), name="extreme")

        def compute(data: Any) -> Any:
            return over_axes(data, axes, _keeps(node), lambda element, over: reducer(element, axis=over))

        return node.cast(node.compute(compute, node.cast(value, kind)), dtype)

    return convert


def both_extremes(node: Node) -> Any:
    return extreme(lower, greatest)(node), extreme(higher, least)(node)


def truth(choose: str) -> Convert:
    """Return a converter of any or all: what is not 0 is true."""

    def convert(node: Node) -> Any:
        value = node[node.first]
        rank = len(node.shape_of(node.first))
        axes = _axes(node, rank)
        flags = node.emit(op.astype(node.cast(value, "bool"), "int32"))
        if axes:
            flags = node.emit(getattr(op, choose)(flags, axes, _keeps(node)))
        return node.cast(node.cast(flags, "bool"), node.dtype())

    return convert


def total(node: Node) -> Any:
    """Sum in the type of the result."""
    value = node.cast(node[node.first], node.dtype())
    axes = _axes(node, len(node.shape_of(node.first)))
    return node.emit(op.sum(value, axes, _keeps(node))) if axes else value


def product(node: Node) -> Any:
    value = node.cast(node[node.first], node.dtype())
    axes = _axes(node, len(node.shape_of(node.first)))
    return node.emit(op.prod(value, axes, _keeps(node))) if axes else value


def _variance(node: Node) -> tuple[Any, Any]:
    """Return the variance, with as many elements fewer as PyTorch's correction says, and the mean."""
    shape, dtype = node.shape_of(node.first), node.dtype()
    axes = _axes(node, len(shape))
    given = node.arguments.get("correction")
    if given is None:
        given = 1 if node.arguments.get("unbiased", True) else 0
    count = math.prod(shape[k] for k in axes)
    kind = "float32" if dtype in SHORT else dtype
    value = node.cast(node[node.first], kind)
    if not axes:
        kept, spread = value, node.emit(op.zeros_like(value))
    else:
        kept = node.emit(op.mean(value, axes, True))
        away = node.emit(op.subtract(value, kept))
        spread = node.emit(op.sum(node.emit(op.multiply(away, away)), axes, _keeps(node)))
    rest = max(count - given, 0)
    divided = node.emit(op.divide(spread, node.const(float(rest), kind)))
    mean = kept if _keeps(node) or not axes else node.emit(op.squeeze(kept, axes))
    return divided, mean


def variance(node: Node) -> Any:
    return node.cast(_variance(node)[0], node.dtype())


def deviation(node: Node) -> Any:
    return node.cast(node.emit(op.sqrt(_variance(node)[0])), node.dtype())


def variance_and_mean(node: Node) -> Any:
    return tuple(node.cast(one, node.dtype()) for one in _variance(node))


def deviation_and_mean(node: Node) -> Any:
    spread, mean = _variance(node)
    return tuple(node.cast(one, node.dtype()) for one in (node.emit(op.sqrt(spread)), mean))


def with_place(choose: str) -> Convert:
    """Return a converter of a largest or smallest element along an axis, with its place."""

    def convert(node: Node) -> Any:
        shape = node.shape_of(node.first)
        if not shape:
            return (node[node.first], node.const(0, "int64"))
        places, values = _along(node, choose, node.axis(node["dim"], len(shape)), _keeps(node))
        return (values, places)

    return convert


def _along(node: Node, choose: str, axis: int, keep: bool, upto: bool = False) -> list[Any]:
    """Return places and values of extremes along an axis; `upto` each place with `upto`."""
    shape, reducer = node.shape_of(node.first), first_of(choose, upto)
    rest = list(shape) if upto else [1 if k == axis else n for k, n in enumerate(shape) if keep or k != axis]
    value = node[node.first]
    dtype = node.dtype_of(value)
    kind = {"bool": "int8", "float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)
    start = least(kind) if choose == "max" else greatest(kind)

    def compute(data: Any) -> Any:
        over = te.reduce_axis((0, tirx.IntImm("int64", shape[axis])), name="k")

        def element(*place: Any) -> Any:
            own = list(place)
            if upto:
                inside = over.var <= place[axis]
                own[axis] = over
                where = tirx.Select(inside, over.var.astype("int64"), tirx.const(-1, "int64"))
                return reducer((where, tirx.Select(inside, data(*own), start)), axis=over)
            if keep:
                own[axis] = over
            else:
                own.insert(axis, over)
            return reducer((over.var.astype("int64"), data(*own)), axis=over)

        found = te.compute(long(rest), element, name="found")
        return [copied(one) for one in found]

    pair = node.compute(compute, node.cast(value, kind))
    places, values = (node.emit(relax.TupleGetItem(pair, k)) for k in (0, 1))
    return [places, node.cast(values, dtype)]


def place_of(choose: str) -> Convert:
    """Return a converter of the place of an extreme; without an axis in the flat tensor."""

    def convert(node: Node) -> Any:
        shape, dim = node.shape_of(node.first), node["dim"]
        if not shape:
            return node.const(0, "int64")
        if dim is not None:
            return _along(node, choose, node.axis(dim, len(shape)), _keeps(node))[0]
        return _flat_place(node, choose, shape)

    return convert


def _flat_place(node: Node, choose: str, shape: tuple[int, ...]) -> Any:
    reducer, count = first_of(choose), math.prod(shape)
    value = node.reshape(node[node.first], (count,))
    if node.dtype_of(value) == "bool":
        value = node.cast(value, "int8")

    def compute(data: Any) -> Any:
        over = te.reduce_axis((0, tirx.IntImm("int64", count)), name="k")
        found = te.compute(
            (), lambda: reducer((over.var.astype("int64"), data(over)), axis=over), name="found"
        )
        return te.compute((), lambda: found[0](), name="place")

    found = node.compute(compute, value)
    return node.reshape(found, (1,) * len(shape)) if _keeps(node) else found


def running(choose: str) -> Convert:
    """Return a converter of cummax or cummin: the last of equals counts."""

    def convert(node: Node) -> Any:
        shape = node.shape_of(node.first)
        if not shape:
            return (node[node.first], node.const(0, "int64"))
        places, values = _along(node, choose, node.axis(node["dim"], len(shape)), True, upto=True)
        return (values, places)

    return convert


def running_log_sum(node: Node) -> Any:
    """Logcumsumexp: the sum up to each place, beside the largest element up to there."""
    shape, dtype = node.shape_of(node.first), node.dtype()
    if not shape:
        return node[node.first]
    axis = node.axis(node["dim"], len(shape))
    kind = "float32" if dtype in SHORT else dtype
    value = node.cast(node[node.first], kind)
    reducer = te.comm_reducer(higher, lambda word: least(str(word)), name="highest")

    def upto(data: Any, of: Callable[[Any, Any, tuple[Any, ...]], Any], reduce: Any) -> Any:
        over = te.reduce_axis((0, tirx.IntImm("int64", shape[axis])), name="k")

        def element(*place: Any) -> Any:
            own = list(place)
            own[axis] = over
            return reduce(of(over.var <= place[axis], data(*own), place), axis=over)

        return te.compute(long(shape), element, name="upto")

    def compute(data: Any) -> Any:
        low = least(kind)
        top = upto(data, lambda inside, x, _: tirx.Select(inside, x, low), reducer)
        top = pointwise(lambda x: tirx.Select(tirx.EQ(x, low), number(0, x), x))(top)

        def part(inside: Any, x: Any, place: tuple[Any, ...]) -> Any:
            return tirx.Select(inside, te.exp(x - top(*place)), number(0, x))

        sums = upto(data, part, te.sum)
        return te.compute(long(shape), lambda *place: te.log(sums(*place)) + top(*place), name="out")

    return node.cast(node.compute(compute, value), dtype)


def norm(node: Node) -> Any:
    """Norm of vectors: of any order, in the result's type."""
    shape, dtype = node.shape_of(node.first), node.dtype()
    axes, order = node.axes(node["dim"], len(shape)), float(node["ord"])
    kind = "float32" if dtype in SHORT else dtype
    value = node.emit(op.abs(node.cast(node[node.first], kind)))
    keep = _keeps(node)
    if not axes:
        return node.cast(node.emit(op.not_equal(value, node.const(0, kind))), dtype) if order == 0 else value
    if math.isinf(order):
        choose, start = (higher, least) if order > 0 else (lower, greatest)
        reducer = te.comm_reducer(choose, lambda word: start(str(word)), name="extreme")
        found = node.compute(
            lambda data: over_axes(data, axes, keep, lambda element, over: reducer(element, axis=over)), value
        )
    elif order == 0:
        found = node.emit(op.sum(node.cast(node.cast(value, "bool"), kind), axes, keep))
    elif order == 1:
        found = node.emit(op.sum(value, axes, keep))
    elif order == 2:
        found = node.emit(op.sqrt(node.emit(op.sum(node.emit(op.multiply(value, value)), axes, keep))))
    else:
        powers = node.emit(op.sum(node.emit(op.power(value, node.const(order, kind))), axes, keep))
        found = node.emit(op.power(powers, node.const(1 / order, kind)))
    return node.cast(found, dtype)


def distances(node: Node) -> Any:
    """Distances of every row of one matrix from every row of another."""
    one, other, p = node.shape_of("x1"), node.shape_of("x2"), float(node["p"])
    dtype = node.dtype()

    def compute(a: Any, b: Any) -> Any:
        def row(*place: Any) -> tuple[Any, Any, Any]:
            over = te.reduce_axis((0, tirx.IntImm("int64", one[-1])), name="k")
            *batch, i, j = place
            first = [0 if n == 1 else at for n, at in zip(one[:-2], batch[len(batch) - len(one) + 2 :])]
            second = [0 if n == 1 else at for n, at in zip(other[:-2], batch[len(batch) - len(other) + 2 :])]
            return a(*first, i, over), b(*second, j, over), over

        return _distance(row, node.shape(), p, dtype)

    return node.compute(compute, node["x1"], node["x2"])


def own_distances(node: Node) -> Any:
    """Distances of a matrix's rows from those after each."""
    import numpy as np

    rows, width = node.shape_of(node.first)
    first, second = (relax.const(one, "int64") for one in np.triu_indices(rows, 1))

    def compute(data: Any, i: Any, j: Any) -> Any:
        def row(place: Any) -> tuple[Any, Any, Any]:
            over = te.reduce_axis((0, tirx.IntImm("int64", width)), name="k")
            return data(i(place), over), data(j(place), over), over

        return _distance(row, node.shape(), float(node["p"]), node.dtype())

    return node.compute(compute, node[node.first], first, second)


def _distance(row: Callable[..., Any], shape: tuple[int, ...], p: float, dtype: str) -> Any:
    reducer = te.comm_reducer(higher, lambda word: tirx.const(0, str(word)), name="highest")

    def element(*place: Any) -> Any:
        x, y, over = row(*place)
        away = te.abs(x - y)
        if math.isinf(p):
            return reducer(away, axis=over)
        if p == 0:
            return te.sum(tirx.Select(tirx.NE(away, number(0, x)), number(1, x), number(0, x)), axis=over)
        return te.sum(away if p == 1 else away * away if p == 2 else te.power(away, number(p, x)), axis=over)

    sums = te.compute(long(shape), element, name="sums")
    if math.isinf(p) or p in (0, 1):
        return sums
    root = (lambda x: te.sqrt(x)) if p == 2 else (lambda x: te.power(x, tirx.const(1 / p, dtype)))
    return te.compute(long(shape), lambda *place: root(sums(*place)), name="out")


def mean(node: Node) -> Any:
    """Mean in the type of the result."""
    if not is_float(node.dtype()):
        node.refuse(f"a mean of the type {node.dtype()} is not supported")
    value = node.cast(node[node.first], node.dtype())
    axes = _axes(node, len(node.shape_of(node.first)))
    return node.emit(op.mean(value, axes, _keeps(node))) if axes else value


_OF_AXES = ("default", "dim", "dims")
CONVERTERS: dict[str, Convert] = {
    **{f"{room}.amax.default": extreme(higher, least) for room in ("aten", "prims")},
    **{f"{room}.amin.default": extreme(lower, greatest) for room in ("aten", "prims")},
    "aten.max.default": extreme(higher, least),
    "aten.min.default": extreme(lower, greatest),
    "aten.aminmax.default": both_extremes,
    **{f"aten.any.{form}": truth("max") for form in _OF_AXES},
    **{f"aten.all.{form}": truth("min") for form in _OF_AXES},
    "aten._is_any_true.default": truth("max"),
    "aten._is_all_true.default": truth("min"),
    "aten.sum.default": total,
    "aten.sum.dim_IntList": total,
    "prims.sum.default": total,
    "aten.prod.default": product,
    "aten.prod.dim_int": product,
    "prims.prod.default": product,
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.var.correction": variance,
    "aten.var.dim": variance,
    "prims.var.default": variance,
    "aten.std.correction": deviation,
    "aten.var_mean.correction": variance_and_mean,
    "aten.std_mean.correction": deviation_and_mean,
    "aten.max.dim": with_place("max"),
    "aten.min.dim": with_place("min"),
    "aten.argmax.default": place_of("max"),
    "aten.argmin.default": place_of("min"),
    "aten.cummax.default": running("max"),
    "aten.cummin.default": running("min"),
    "aten.logcumsumexp.default": running_log_sum,
    "aten.linalg_vector_norm.default": norm,
    "aten._cdist_forward.default": distances,
    "aten._pdist_forward.default": own_distances,
}
