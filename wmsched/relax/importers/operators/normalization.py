"""Normalizations with further outputs, scales that are broadcast, or statistics of the batch; Dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te

from wmsched.relax.importers.operators.node import Node
from wmsched.relax.importers.operators.stock import stock

op = relax.op


def _stashed(node: Node) -> str:
    """Return the type in which a normalization's statistics are computed."""
    dtype = node.dtype()
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def layer(node: Node) -> Any:
    """LayerNormalization with its mean and inverse deviation, and scales that are broadcast."""
    shape = node.shape()
    axis = node.axis(node.integer("axis", -1), len(shape))
    axes = list(range(axis, len(shape)))
    if node.inputs[1] is not None and not (node.wants(1) or node.wants(2)) and node.shape(1) == shape[axis:]:
        return stock("LayerNormalization")(node)
    kind = _stashed(node)
    x = node.cast(node.inputs[0], kind)
    mean = node.emit(op.mean(x, axes, True))
    away = node.emit(op.subtract(x, mean))
    variance = node.emit(op.mean(node.emit(op.multiply(away, away)), axes, True))
    epsilon = node.const(node.number("epsilon", 1e-5), kind)
    inverse = node.emit(
        op.divide(node.const(1, kind), node.emit(op.sqrt(node.emit(op.add(variance, epsilon)))))
    )
    found = node.cast(node.emit(op.multiply(away, inverse)), node.dtype())
    found = node.emit(op.multiply(found, node.inputs[1]))
    if node.has(2):
        found = node.emit(op.add(found, node.inputs[2]))
    return [found, mean, inverse][: max(1, len(node.outputs))]


def root_mean_square(node: Node) -> Any:
    """RMSNormalization; the scale is broadcast."""
    shape = node.shape()
    axis = node.axis(node.integer("axis", -1), len(shape))
    axes = list(range(axis, len(shape)))
    if axis == len(shape) - 1 and node.shape(1) == shape[axis:]:
        return stock("RMSNormalization")(node)
    kind = _stashed(node)
    x = node.cast(node.inputs[0], kind)
    square = node.emit(op.mean(node.emit(op.multiply(x, x)), axes, True))
    epsilon = node.const(node.number("epsilon", 1e-5), kind)
    root = node.emit(op.sqrt(node.emit(op.add(square, epsilon))))
    found = node.cast(node.emit(op.divide(x, root)), node.dtype())
    return node.emit(op.multiply(found, node.inputs[1]))


def batch(node: Node) -> Any:
    """BatchNormalization, also with the batch's own statistics (training mode)."""
    if node.integer("spatial", 1) != 1:
        node.refuse("spatial=0, statistics of each place, is not supported")
    if node.opset < 7 and not node.integer("is_test"):
        node.refuse("is_test=0, training in the form of old operator sets, is not supported")
    training = node.integer("training_mode")
    if not training:
        if any(node.wants(k) for k in range(1, len(node.outputs))):
            node.refuse("it returns statistics of training, in the form of old operator sets")
        node.attributes = node.attributes | {"spatial": 1}
        return stock("BatchNormalization")(node)
    shape, kind = node.shape(), _stashed(node)
    axes = [k for k in range(len(shape)) if k != 1]
    along = (1, shape[1]) + (1,) * (len(shape) - 2)
    x = node.cast(node.inputs[0], kind)
    mean = node.emit(op.mean(x, axes, True))
    away = node.emit(op.subtract(x, mean))
    variance = node.emit(op.mean(node.emit(op.multiply(away, away)), axes, True))
    root = node.emit(op.sqrt(node.emit(op.add(variance, node.const(node.number("epsilon", 1e-5), kind)))))
    scale, shift = (node.reshape(node.cast(node.inputs[k], kind), along) for k in (1, 2))
    scaled = node.emit(op.multiply(node.emit(op.divide(away, root)), scale))
    found = node.cast(node.emit(op.add(scaled, shift)), node.dtype())
    momentum = node.number("momentum", 0.9)
    running = []
    for place, new in ((3, mean), (4, variance)):
        old = node.emit(op.multiply(node.cast(node.inputs[place], kind), node.const(momentum, kind)))
        part = node.emit(op.multiply(node.reshape(new, (shape[1],)), node.const(1 - momentum, kind)))
        running.append(node.cast(node.emit(op.add(old, part)), node.dtype(place)))
    return [found, *running][: max(1, len(node.outputs))]


def dropout(node: Node) -> Any:
    """Dropout in inference: the input itself, and a mask of truths."""
    training = node.has(2) and bool(node.constant(2, "whether it trains").reshape(-1)[0])
    ratio = 0.5
    if node.opset >= 12 and node.has(1) and training:
        ratio = float(node.constant(1, "its ratio").reshape(-1)[0])
    if training and ratio:
        node.refuse("it draws random numbers (training mode)")
    if len(node.outputs) < 2 or not node.outputs[1]:
        return node.inputs[0]
    kind = "bool" if node.opset >= 10 else node.dtype()
    return [node.inputs[0], node.emit(op.ones(node.shape(), kind))]


def lp(node: Node) -> Any:
    """LpNormalization; a norm of 0 gives 0."""
    shape, p = node.shape(), node.integer("p", 2)
    axis = node.axis(node.integer("axis", -1), len(shape))
    kind = _stashed(node)
    x = node.cast(node.inputs[0], kind)
    if p == 1:
        norm = node.emit(op.sum(node.emit(op.abs(x)), [axis], True))
    elif p == 2:
        norm = node.emit(op.sqrt(node.emit(op.sum(node.emit(op.multiply(x, x)), [axis], True))))
    else:
        node.refuse(f"p is {p}; 1 and 2 are supported")
    zero = node.const(0, kind)
    none = node.emit(op.equal(norm, zero))
    safe = node.emit(op.where(none, node.const(1, kind), norm))
    return node.cast(node.emit(op.where(none, zero, node.emit(op.divide(x, safe)))), node.dtype())


def in_float32(name: str) -> Callable[[Node], Any]:
    """Return TVM's converter, for short types in float32."""

    def convert(node: Node) -> Any:
        dtype = node.dtype()
        if dtype in ("float16", "bfloat16"):
            node.inputs[0] = node.cast(node.inputs[0], "float32")
        return node.cast(node.builder.normalize(stock(name)(node)), dtype)

    return convert


def softmax(node: Node) -> Any:
    """Softmax: short types are rounded after each step of the standard's body, and summed in float32.

    TVM sums them in their own type.
    """
    dtype, shape = node.dtype(), node.shape()
    if dtype not in ("float16", "bfloat16") or node.opset < 13:
        return in_float32("Softmax")(node)
    axis = node.axis(node.integer("axis", -1), len(shape))
    over = te.reduce_axis((0, shape[axis]), name="k")
    again = te.reduce_axis((0, shape[axis]), name="k")
    rest = [extent for k, extent in enumerate(shape) if k != axis]

    def compute(data: Any) -> Any:
        def along(place: tuple[Any, ...], k: Any) -> list[Any]:
            return [*place[:axis], k, *place[axis:]]

        def without(place: tuple[Any, ...]) -> list[Any]:
            return [one for k, one in enumerate(place) if k != axis]

        def wide(value: Any) -> Any:
            return value.astype("float32")

        top = te.compute(rest, lambda *at: te.max(wide(data(*along(at, over))), axis=over), name="top")
        away = te.compute(shape, lambda *at: (wide(data(*at)) - top(*without(at))).astype(dtype), name="away")
        power = te.compute(shape, lambda *at: te.exp(wide(away(*at))).astype(dtype), name="power")
        total = te.compute(rest, lambda *at: te.sum(wide(power(*along(at, again))), axis=again), name="total")
        return te.compute(
            shape,
            lambda *at: (wide(power(*at)) / wide(total(*without(at)).astype(dtype))).astype(dtype),
            name="softmax",
        )

    return node.compute(compute, node.inputs[0])


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    "BatchNormalization": batch,
    "Dropout": dropout,
    "LayerNormalization": layer,
    "LogSoftmax": in_float32("LogSoftmax"),
    "LpNormalization": lp,
    "RMSNormalization": root_mean_square,
    "Softmax": softmax,
}
