"""Elementwise operators whose TVM converter errs on NaN, infinities, whole numbers or types.

Whole numbers divide as C does, and never end the process: a division by zero gives 0, and the least number by
-1 gives itself, where ONNX leaves both open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from wmsched.relax.importers.operators.node import INTEGERS, SIGNED, UNSIGNED, Node, is_float

op = relax.op


def bits_of(dtype: str) -> int:
    """Return the width of an integer type."""
    return int(dtype.removeprefix("u").removeprefix("int"))


def pointwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tensor expression of a function of elements; inputs are broadcast."""

    def tensors(*given: Any) -> Any:
        shape: list[int] = []
        for tensor in given:
            shape = broadcast(shape, [int(extent) for extent in tensor.shape])

        def element(*place: Any) -> Any:
            return function(*(_at(tensor, place) for tensor in given))

        return te.compute(shape, element, name="elements")

    return tensors


def broadcast(one: list[int], other: list[int]) -> list[int]:
    rank = max(len(one), len(other))
    one, other = [1] * (rank - len(one)) + one, [1] * (rank - len(other)) + other
    return [b if a == 1 else a for a, b in zip(one, other)]


def _at(tensor: Any, place: tuple[Any, ...]) -> Any:
    rank = len(tensor.shape)
    own = place[len(place) - rank :]
    return tensor(*(0 if int(extent) == 1 else k for k, extent in zip(own, tensor.shape)))


def higher(a: Any, b: Any) -> Any:
    """Return the larger of two; NaN where either is."""
    if not is_float(str(a.ty.dtype)):
        return tirx.Max(a, b)
    return tirx.Select(tirx.Or(te.isnan(a), a >= b), a, b)


def lower(a: Any, b: Any) -> Any:
    """Return the smaller of two; NaN where either is."""
    if not is_float(str(a.ty.dtype)):
        return tirx.Min(a, b)
    return tirx.Select(tirx.Or(te.isnan(a), a <= b), a, b)


def extremum(choose: Callable[[Any, Any], Any]) -> Callable[[Node], Any]:
    def convert(node: Node) -> Any:
        given = [value for value in node.inputs if value is not None]
        found = given[0]
        for value in given[1:]:
            found = node.compute(pointwise(choose), found, value)
        return found

    return convert


def _nonzero(b: Any) -> Any:
    return tirx.Select(tirx.EQ(b, tirx.const(0, b.ty.dtype)), tirx.const(1, b.ty.dtype), b)


def quotient(a: Any, b: Any) -> Any:
    """Return a quotient of whole numbers; no value of them ends the process."""
    dtype = str(a.ty.dtype)
    zero = tirx.const(0, dtype)
    if dtype in UNSIGNED:
        return tirx.Select(tirx.EQ(b, zero), zero, tirx.truncdiv(a, _nonzero(b)))
    minus = tirx.EQ(b, tirx.const(-1, dtype))
    safe = tirx.Select(minus, tirx.const(1, dtype), _nonzero(b))
    whole = tirx.truncdiv(a, safe)
    return tirx.Select(tirx.EQ(b, zero), zero, tirx.Select(minus, zero - a, whole))


def remainder(a: Any, b: Any, of_divisor: bool) -> Any:
    """Return a remainder of whole numbers, with the divisor's sign or the dividend's."""
    dtype = str(a.ty.dtype)
    zero = tirx.const(0, dtype)
    safe = _nonzero(b)
    if dtype in UNSIGNED:
        return tirx.Select(tirx.EQ(b, zero), zero, tirx.truncmod(a, safe))
    minus = tirx.EQ(safe, tirx.const(-1, dtype))
    safe = tirx.Select(minus, tirx.const(1, dtype), safe)
    rest = tirx.truncmod(a, safe)
    if of_divisor:
        other = tirx.And(tirx.NE(rest, zero), _differ(rest < zero, safe < zero))
        rest = tirx.Select(other, rest + safe, rest)
    return tirx.Select(tirx.Or(tirx.EQ(b, zero), minus), zero, rest)


def _differ(a: Any, b: Any) -> Any:
    """Whether two truths differ; LLVM compares no truths here."""
    return tirx.Or(tirx.And(a, tirx.Not(b)), tirx.And(tirx.Not(a), b))


def divide(node: Node) -> Any:
    if is_float(node.dtype()):
        return node.emit(op.divide(node.inputs[0], node.inputs[1]))
    return node.compute(pointwise(quotient), *node.inputs[:2])


def modulo(node: Node) -> Any:
    """Mod: whole numbers with the divisor's sign; with ``fmod``, and of floats, as C's fmod."""
    as_c, dtype = node.integer("fmod"), node.dtype()
    if not is_float(dtype):
        return node.compute(pointwise(lambda a, b: remainder(a, b, not as_c)), *node.inputs[:2])
    if dtype in ("float16", "bfloat16"):
        wide = [node.cast(value, "float32") for value in node.inputs[:2]]
        return node.cast(node.compute(pointwise(fmod if as_c else python_mod), *wide), dtype)
    return node.compute(pointwise(fmod if as_c else python_mod), *node.inputs[:2])


def fmod(a: Any, b: Any) -> Any:
    return tirx.truncmod(a, b)  # of floats LLVM's frem


def python_mod(a: Any, b: Any) -> Any:
    """Remainder of the divisor's sign, as numpy's mod: -0 and infinities included."""
    rest = fmod(a, b)
    zero = tirx.const(0, a.ty.dtype)
    other = tirx.And(tirx.NE(rest, zero), _differ(rest < zero, b < zero))
    signed_zero = tirx.Select(b < zero, tirx.const(-0.0, a.ty.dtype), zero)
    return tirx.Select(other, rest + b, tirx.Select(tirx.EQ(rest, zero), signed_zero, rest))


def shift(node: Node) -> Any:
    """BitShift: a shift by the width or more gives 0, or the sign for a signed number to the right."""
    left = node.text("direction").upper() == "LEFT"
    dtype = node.dtype()
    if dtype not in INTEGERS:
        node.refuse(f"a {dtype} has no bits to shift")
    bits = bits_of(dtype)

    def element(a: Any, by: Any) -> Any:
        zero, last = tirx.const(0, dtype), tirx.const(bits - 1, dtype)
        beyond = by > last
        if dtype in SIGNED:
            beyond = tirx.Or(beyond, by < zero)
        inside = tirx.Select(beyond, zero, by)
        moved = tirx.shift_left(a, inside) if left else tirx.shift_right(a, inside)
        rest = tirx.shift_right(a, last) if not left and dtype in SIGNED else zero
        return tirx.Select(beyond, rest, moved)

    return node.compute(pointwise(element), *node.inputs[:2])


def sign(node: Node) -> Any:
    """Sign: NaN stays NaN, as in onnxruntime's reference, numpy."""

    def element(x: Any) -> Any:
        dtype = str(x.ty.dtype)
        zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
        if dtype in UNSIGNED:
            return tirx.Select(x > zero, one, zero)
        found = tirx.Select(x > zero, one, tirx.Select(x < zero, tirx.const(-1, dtype), zero))
        return tirx.Select(te.isnan(x), x, found) if is_float(dtype) else found

    return node.compute(pointwise(element), node.inputs[0])


def is_infinite(node: Node) -> Any:
    up, down = node.integer("detect_positive", 1), node.integer("detect_negative", 1)

    def element(x: Any) -> Any:
        dtype = str(x.ty.dtype)
        none = tirx.const(False, "bool")
        high = tirx.EQ(x, tirx.const(float("inf"), dtype)) if up else none
        low = tirx.EQ(x, tirx.const(float("-inf"), dtype)) if down else none
        return tirx.Or(high, low)

    return node.compute(pointwise(element), node.inputs[0])


def clip(node: Node) -> Any:
    """Clip: constant bounds are one operator, which fuses; computed ones are broadcast. NaN stays NaN."""
    data, dtype = node.inputs[0], node.dtype()
    bounds: list[Any] = [node.inputs[1] if node.has(1) else None, node.inputs[2] if node.has(2) else None]
    if node.opset < 11:
        for k, name in enumerate(("min", "max")):
            if name in node.attributes:
                bounds[k] = node.const(node.attributes[name], dtype)
    from tvm.ir import Constant

    known = [bound is None or isinstance(bound, Constant) for bound in bounds]
    if all(known) and is_float(dtype) and any(bound is not None for bound in bounds):
        low, high = (
            default if bound is None else float(bound.value.numpy().astype("float64").reshape(-1)[0])
            for bound, default in zip(bounds, (float("-inf"), float("inf")))
        )
        if low > high:
            low = high
        if float("-inf") < low and high < float("inf") and low == low and high == high:
            return node.emit(op.clip(data, low, high))
    found = data
    for bound, choose in zip(bounds, (higher, lower)):
        if bound is not None:
            found = node.compute(
                pointwise(lambda x, b, choose=choose: choose(x, b)), found, node.reshape(bound, ())
            )
    return found


def power(node: Node) -> Any:
    """Pow: the result has the base's type; whole numbers multiply."""
    base, exponent = node.inputs[:2]
    kinds = node.dtype(0), node.dtype(1)
    if is_float(kinds[0]):
        if kinds[0] == kinds[1] or not is_float(kinds[1]) or kinds[1] != "float64":
            return node.emit(op.power(base, node.cast(exponent, kinds[0])))
        wide = node.emit(op.power(node.cast(base, "float64"), exponent))
        return node.cast(wide, kinds[0])
    if is_float(kinds[1]):
        wide = node.emit(op.power(node.cast(base, "float64"), node.cast(exponent, "float64")))
        return node.cast(wide, kinds[0])
    width = "int64" if kinds[1] in SIGNED else "uint64"
    return node.compute(pointwise(whole_power), base, node.cast(exponent, width))


def whole_power(base: Any, exponent: Any) -> Any:
    """Return a power of whole numbers that wraps, by squaring."""
    dtype = str(base.ty.dtype)
    one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
    found, square = one, base
    for k in range(7):  # 2 ** 64 wraps to 0: exponents of more bits give 0, 1 or a sign
        bit = tirx.bitwise_and(
            tirx.shift_right(exponent, tirx.const(k, exponent.ty.dtype)), tirx.const(1, exponent.ty.dtype)
        )
        found = tirx.Select(tirx.NE(bit, tirx.const(0, exponent.ty.dtype)), found * square, found)
        square = square * square
    if str(exponent.ty.dtype) == "int64":
        minus = tirx.const(-1, dtype) if dtype in SIGNED else zero
        odd = tirx.NE(tirx.bitwise_and(exponent, tirx.const(1, "int64")), tirx.const(0, "int64"))
        below = tirx.Select(tirx.EQ(base, one), one, zero)
        if dtype in SIGNED:
            below = tirx.Select(tirx.EQ(base, minus), tirx.Select(odd, minus, one), below)
        found = tirx.Select(exponent < tirx.const(0, "int64"), below, found)
    return found


def softplus(node: Node) -> Any:
    """Softplus without overflow: max(x, 0) + log(1 + exp(-|x|))."""
    return _of_wide(node, node.inputs[0], _softplus)


def mish(node: Node) -> Any:
    return _of_wide(node, node.inputs[0], lambda x: x * te.tanh(_softplus(x)))


def _softplus(x: Any) -> Any:
    zero, one = tirx.const(0, x.ty.dtype), tirx.const(1, x.ty.dtype)
    magnitude = tirx.Select(x < zero, zero - x, x)
    small = te.exp(zero - magnitude)
    near = small - small * small * tirx.const(0.5, x.ty.dtype)  # log(1 + t) has no digits of a small t
    tail = tirx.Select(small < tirx.const(1e-4, x.ty.dtype), near, te.log(one + small))
    return tirx.Select(x < zero, zero, x) + tail


def _of_wide(node: Node, value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a function of elements, of short types in float32."""
    dtype = str(value.ty.dtype)
    wide = node.cast(value, "float32") if dtype in ("float16", "bfloat16") else value
    return node.cast(node.compute(pointwise(function), wide), dtype)


def swish(node: Node) -> Any:
    alpha = node.number("alpha", 1.0)

    def element(x: Any) -> Any:
        return x * te.sigmoid(x * tirx.const(alpha, x.ty.dtype))

    return _of_wide(node, node.inputs[0], element)


def parametric_relu(node: Node) -> Any:
    """PRelu: the slope is broadcast to the input."""
    slope = node.inputs[1]
    shape, of_slope = node.shape(0), node.shape(1)
    if len(of_slope) == 1 and len(shape) > 1 and of_slope[0] == shape[1] and of_slope[0] != shape[-1]:
        slope = node.reshape(slope, (of_slope[0],) + (1,) * (len(shape) - 2))  # of PyTorch's first exporter

    def element(x: Any, a: Any) -> Any:
        return tirx.Select(x < tirx.const(0, x.ty.dtype), x * a, x)

    return node.compute(pointwise(element), node.inputs[0], slope)


def bit_cast(node: Node) -> Any:
    from wmsched.relax.importers.operators.casts import type_named

    to = type_named(node, node.integer("to"))

    def element(x: Any) -> Any:
        return tirx.reinterpret(to, x)

    if to == "bool" or node.dtype() == "bool":
        node.refuse("the bits of truths are not moved")
    return node.compute(pointwise(element), node.inputs[0])


def celu(node: Node) -> Any:
    alpha = node.number("alpha", 1.0)

    def element(x: Any) -> Any:
        zero, a = tirx.const(0, x.ty.dtype), tirx.const(alpha, x.ty.dtype)
        return tirx.Select(x > zero, x, a * (te.exp(x / a) - tirx.const(1, x.ty.dtype)))

    return _of_wide(node, node.inputs[0], element)


def elu(node: Node) -> Any:
    alpha = node.number("alpha", 1.0)

    def element(x: Any) -> Any:
        zero, a = tirx.const(0, x.ty.dtype), tirx.const(alpha, x.ty.dtype)
        return tirx.Select(x < zero, a * (te.exp(x) - tirx.const(1, x.ty.dtype)), x)

    return _of_wide(node, node.inputs[0], element)


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    "BitCast": bit_cast,
    "BitShift": shift,
    "Celu": celu,
    "Clip": clip,
    "Div": divide,
    "Elu": elu,
    "IsInf": is_infinite,
    "Max": extremum(higher),
    "Min": extremum(lower),
    "Mish": mish,
    "Mod": modulo,
    "PRelu": parametric_relu,
    "Pow": power,
    "Sign": sign,
    "Softplus": softplus,
    "Swish": swish,
}
