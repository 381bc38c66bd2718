"""Elementwise operators that TVM's importer lacks, or whose whole numbers, NaN or factors it misses.

Short floating-point types compute in float32, as PyTorch's do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from wmsched.relax.importers.aten.node import Node, is_float
from wmsched.relax.importers.operators.elementwise import (
    bits_of,
    fmod,
    higher,
    lower,
    pointwise,
    python_mod,
    quotient,
    remainder,
    whole_power,
)
from wmsched.relax.importers.operators.node import INTEGERS, SIGNED

op = relax.op
SHORT = ("float16", "bfloat16")
EUCLID = {8: 12, 16: 24, 32: 46, 64: 92}  # steps that two numbers of so many bits need at most
Convert = Callable[[Node], Any]


def number(value: float, like: Any) -> Any:
    """Return a number in the type of an expression."""
    return tirx.const(value, like.ty.dtype)


def of_elements(function: Callable[..., Any], *names: str, count: int = 1, dtype: str = "") -> Convert:
    """Return a converter of a function of elements.

    Parameters
    ----------
    function : callable of expressions
    names : str
        Arguments that are broadcast; the first ones by default.
    count : int
        How many those are.
    dtype : str
        Type that they are computed in; the result's by default, of short types float32.
    """

    def convert(node: Node) -> Any:
        wanted = node.dtype()
        kind = dtype or ("float32" if wanted in SHORT else wanted)
        given = [node.value(name, kind) for name in names or list(node.arguments)[:count]]
        found = node.compute(pointwise(function), *given)
        return node.cast(found, wanted)

    return convert


def library(name: str) -> Callable[..., Any]:
    """Return a function of C's mathematical library, by its name in double precision."""

    def call(*given: Any) -> Any:
        kind = str(given[0].ty.dtype)
        return tirx.call_pure_extern(kind, name if kind == "float64" else f"{name}f", *given)

    return call


def _tested(function: Callable[[Any], Any], of_whole: bool) -> Convert:
    """Return a converter of a test of floats; whole numbers all answer `of_whole`."""

    def convert(node: Node) -> Any:
        value = node[node.first]
        if not is_float(node.dtype_of(value)):
            given = node.emit(op.full_like(node.cast(value, "int32"), node.const(int(of_whole), "int32")))
            return node.cast(given, "bool")
        wide = node.cast(value, "float32") if node.dtype_of(value) in SHORT else value
        return node.compute(pointwise(function), wide)

    return convert


def _infinite(x: Any) -> Any:
    return tirx.Or(tirx.EQ(x, number(float("inf"), x)), tirx.EQ(x, number(float("-inf"), x)))


def _finite(x: Any) -> Any:
    return tirx.And(tirx.Not(te.isnan(x)), tirx.Not(_infinite(x)))


def _log_add_exp(a: Any, b: Any) -> Any:
    top = higher(a, b)
    away = tirx.Select(tirx.EQ(a, b), number(0, a), te.abs(a - b))  # of equal infinities as well
    return top + library("log1p")(te.exp(number(0, a) - away))


def elu(node: Node) -> Any:
    """Elu with its factors of result and input, which selu and celu set."""
    alpha, scale, of_input = (
        float(node[name]) if node.has(name) else 1.0 for name in ("alpha", "scale", "input_scale")
    )

    def element(x: Any) -> Any:
        below = library("expm1")(x * number(of_input, x)) * number(alpha * scale, x)
        return tirx.Select(x > number(0, x), x * number(scale, x), tirx.Select(te.isnan(x), x, below))

    return of_elements(element)(node)


def _whole(function: Callable[..., Any], otherwise: Callable[..., Any] | None = None) -> Convert:
    """Return a converter for whole numbers; of floats another function, or TVM's converter."""

    def convert(node: Node) -> Any:
        if node.dtype() in INTEGERS:
            return of_elements(function, *list(node.arguments)[:2])(node)
        if otherwise is None:
            return NotImplemented
        return of_elements(otherwise, *list(node.arguments)[:2])(node)

    return convert


def _floor_quotient(a: Any, b: Any) -> Any:
    found = quotient(a, b)
    rest = remainder(a, b, False)
    if str(a.ty.dtype) not in SIGNED:
        return found
    zero = number(0, a)
    below = tirx.And(
        tirx.NE(rest, zero), tirx.NE(tirx.Cast("int32", rest < zero), tirx.Cast("int32", b < zero))
    )
    return tirx.Select(below, found - number(1, a), found)


def _floor_of_floats(a: Any, b: Any) -> Any:
    """Return the floor of a quotient as Python has it: by the remainder, so that rounding does not count."""
    rest = python_mod(a, b)
    whole = (a - rest) / b
    near = te.floor(whole)
    found = tirx.Select(whole - near > number(0.5, a), near + number(1, a), near)
    return tirx.Select(tirx.EQ(b, number(0, a)), a / b, found)


def divide(node: Node) -> Any:
    """Div with a mode of rounding, and floor_divide."""
    mode = node["rounding_mode"] if node.has("rounding_mode") else None
    names = list(node.arguments)[:2]
    if mode is None and "rounding_mode" in node.arguments:
        return of_elements(lambda a, b: a / b, *names)(node)
    floors = mode == "floor" or "rounding_mode" not in node.arguments
    if node.dtype() in INTEGERS:
        return of_elements(_floor_quotient if floors else quotient, *names)(node)
    return of_elements(_floor_of_floats if floors else lambda a, b: te.trunc(a / b), *names)(node)


def power(node: Node) -> Any:
    """Pow of whole numbers by multiplication; of floats TVM's."""
    if node.dtype() not in INTEGERS:
        base, exponent = (node.value(name, node.dtype()) for name in list(node.arguments)[:2])
        if node.dtype() in SHORT:
            return NotImplemented
        return node.emit(op.power(base, exponent))
    base, exponent = list(node.arguments)[:2]
    raised = node.value(exponent, "int64")
    return node.compute(pointwise(whole_power), node.value(base, node.dtype()), raised)


def shift(left: bool) -> Convert:
    """Return a converter of a shift of bits; by the width or more it gives 0, or the sign to the right."""

    def element(a: Any, by: Any) -> Any:
        dtype = str(a.ty.dtype)
        zero, last = number(0, a), number(bits_of(dtype) - 1, a)
        beyond = tirx.Or(by > last, by < zero) if dtype in SIGNED else by > last
        inside = tirx.Select(beyond, zero, by)
        moved = tirx.shift_left(a, inside) if left else tirx.shift_right(a, inside)
        rest = tirx.shift_right(a, last) if not left and dtype in SIGNED else zero
        return tirx.Select(beyond, rest, moved)

    def convert(node: Node) -> Any:
        if node.dtype() not in INTEGERS:
            node.refuse(f"a {node.dtype()} has no bits to shift")
        return of_elements(element, *list(node.arguments)[:2])(node)

    return convert


def _only(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an extremum that passes NaN over."""

    def element(a: Any, b: Any) -> Any:
        if not is_float(str(a.ty.dtype)):
            return choose(a, b)
        return tirx.Select(te.isnan(a), b, tirx.Select(te.isnan(b), a, choose(a, b)))

    return element


def sign_bit(node: Node) -> Any:
    value = node[node.first]
    dtype = node.dtype_of(value)
    if not is_float(dtype):
        return node.compute(pointwise(lambda x: x < number(0, x)), value)
    wide = value if dtype in ("float32", "float64") else node.cast(value, "float32")
    bits = "int64" if dtype == "float64" else "int32"
    return node.compute(pointwise(lambda x: tirx.reinterpret(bits, x) < tirx.const(0, bits)), wide)


def frexp(node: Node) -> Any:
    """Mantissa and exponent: from the bits, after numbers below the normal ones are scaled up."""
    value, dtype = node[node.first], node.dtype(0)
    if dtype not in ("float32", "float64"):
        node.refuse(f"of elements of the type {dtype} it is not supported")
    bits, width, bias = ("int64", 52, 1022) if dtype == "float64" else ("int32", 23, 126)
    mask = (1 << (11 if dtype == "float64" else 8)) - 1
    up = 54 if dtype == "float64" else 25

    def parts(x: Any) -> tuple[Any, Any]:
        tiny = tirx.And(te.abs(x) < number(2.0 ** (1 - bias), x), tirx.NE(x, number(0, x)))
        scaled = tirx.Select(tiny, x * number(2.0**up, x), x)
        whole = tirx.reinterpret(bits, scaled)
        raised = tirx.bitwise_and(tirx.shift_right(whole, tirx.const(width, bits)), tirx.const(mask, bits))
        plain = tirx.And(tirx.NE(x, number(0, x)), tirx.NE(raised, tirx.const(mask, bits)))
        exponent = (
            raised - tirx.const(bias, bits) - tirx.Select(tiny, tirx.const(up, bits), tirx.const(0, bits))
        )
        cleared = tirx.bitwise_and(whole, tirx.const(~(mask << width), bits))
        half = tirx.reinterpret(dtype, tirx.bitwise_or(cleared, tirx.const(bias << width, bits)))
        return tirx.Select(plain, half, x), tirx.Select(plain, exponent, tirx.const(0, bits))

    mantissa = node.compute(pointwise(lambda x: parts(x)[0]), value)
    exponent = node.compute(pointwise(lambda x: tirx.Cast("int32", parts(x)[1])), value)
    return (mantissa, exponent)


def convert_type(node: Node) -> Any:
    return node.cast(node[node.first], node.dtype())


def where(node: Node) -> Any:
    condition, *rest = list(node.arguments)
    given = [node.value(name, node.dtype()) for name in rest]
    return node.emit(op.where(node.cast(node[condition], "bool"), *given))


def angle(node: Node) -> Any:
    """Angle of real numbers: pi of negative ones."""

    def element(x: Any) -> Any:
        found = tirx.Select(x < number(0, x), number(3.141592653589793, x), number(0, x))
        return tirx.Select(te.isnan(x), x, found)

    return of_elements(element)(node)


def greatest_divisor(node: Node) -> Any:
    """Gcd, by as many of Euclid's steps as the type's largest numbers need."""

    def step(p: Any, q: Any) -> tuple[Any, Any]:
        done = tirx.EQ(q, number(0, q))
        return tirx.Select(done, p, q), tirx.Select(done, q, remainder(p, q, False))

    def positive(v: Any) -> Any:
        return tirx.Select(v < number(0, v), number(0, v) - v, v)

    a, b = (
        node.compute(pointwise(positive), node.value(name, node.dtype())) for name in list(node.arguments)[:2]
    )
    for _ in range(EUCLID[bits_of(node.dtype())]):
        a, b = (node.compute(pointwise(lambda p, q, k=k: step(p, q)[k]), a, b) for k in (0, 1))
    return a


def of_truths(combine: Callable[[Any, Any], Any], of_floats: Callable[..., Any] | None = None) -> Convert:
    """Return a converter for truths, on which LLVM does no arithmetic; of floats another, or TVM's."""

    def convert(node: Node) -> Any:
        if node.dtype() != "bool":
            if of_floats is None or not is_float(node.dtype()):
                return NotImplemented
            return of_elements(of_floats, count=2)(node)
        return node.emit(combine(*(node.value(name, "bool") for name in list(node.arguments)[:2])))

    return convert


def with_itself(equal: bool) -> Convert:
    """Return a comparison: TVM takes a tensor for equal to itself, and PyTorch's NaN is not."""

    def convert(node: Node) -> Any:
        one, other = (node[name] for name in list(node.arguments)[:2])
        if not (isinstance(one, relax.Expr) and isinstance(other, relax.Expr) and one.same_as(other)):
            return NotImplemented
        found = _tested(te.isnan, False)(node)
        return node.emit(op.logical_not(found)) if equal else found

    return convert


def unchanged(node: Node) -> Any:
    return node[node.first]


CONVERTERS: dict[str, Convert] = {
    "aten.alias.default": unchanged,
    **{f"aten.{word}.Tensor": with_itself(True) for word in ("eq", "ge", "le")},
    "aten.ne.Tensor": with_itself(False),
    "aten.mul.Tensor": of_truths(op.logical_and),
    "aten.mul.Scalar": of_truths(op.logical_and),
    "aten.add.Tensor": of_truths(op.logical_or),
    "aten.maximum.default": of_truths(op.logical_or, higher),
    "aten.minimum.default": of_truths(op.logical_and, lower),
    "aten.isfinite.default": _tested(_finite, True),
    "aten.isinf.default": _tested(_infinite, False),
    "aten.isnan.default": _tested(te.isnan, False),
    "aten.logaddexp.default": of_elements(_log_add_exp, count=2),
    "aten.elu.default": elu,
    "aten.exp2.default": of_elements(library("exp2")),
    "prims.exp2.default": of_elements(library("exp2")),
    "aten.log1p.default": of_elements(library("log1p")),
    "aten.expm1.default": of_elements(library("expm1")),
    "aten.erf.default": of_elements(library("erf")),
    "aten.erfc.default": of_elements(library("erfc")),
    "aten.hypot.default": of_elements(library("hypot"), count=2),
    "prims.hypot.default": of_elements(library("hypot"), count=2),
    "prims.nextafter.default": of_elements(library("nextafter"), count=2),
    "aten.floor_divide.default": divide,
    "aten.div.Tensor_mode": divide,
    "aten.div.Scalar_mode": divide,
    "prims.div.default": _whole(quotient, lambda a, b: a / b),
    "aten.fmod.Tensor": _whole(lambda a, b: remainder(a, b, False), fmod),
    "aten.fmod.Scalar": _whole(lambda a, b: remainder(a, b, False), fmod),
    "aten.remainder.Tensor": _whole(lambda a, b: remainder(a, b, True), python_mod),
    "aten.remainder.Scalar": _whole(lambda a, b: remainder(a, b, True), python_mod),
    "aten.pow.Tensor_Tensor": power,
    "aten.pow.Tensor_Scalar": power,
    "aten.pow.Scalar": power,
    "aten.bitwise_left_shift.Tensor": shift(True),
    "aten.bitwise_right_shift.Tensor": shift(False),
    "prims.shift_left.default": shift(True),
    "prims.shift_right_arithmetic.default": shift(False),
    "prims.fmax.default": of_elements(_only(higher), count=2),
    "prims.fmin.default": of_elements(_only(lower), count=2),
    "prims.maximum.default": of_elements(higher, count=2),
    "prims.minimum.default": of_elements(lower, count=2),
    "aten.signbit.default": sign_bit,
    "aten.copysign.Tensor": of_elements(library("copysign"), count=2),
    "aten.copysign.Scalar": of_elements(library("copysign"), count=2),
    "prims.frexp.default": frexp,
    "prims.where.default": where,
    "prims.convert_element_type.default": convert_type,
    "prims.gcd.default": greatest_divisor,
    "aten.gcd.default": greatest_divisor,
    "aten.angle.default": angle,
}
