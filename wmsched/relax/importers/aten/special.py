"""Special functions, in double precision: by C's library, series of far arguments, and sums over a period."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from wmsched.relax.importers.aten.elementwise import Convert, library, number, of_elements
from wmsched.relax.importers.aten.node import Node

WIDE = "float64"
SHIFTS = 12  # by which an argument of polygamma goes up, to where its series holds
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
#: Giles' polynomials of erfinv, highest power first: near the middle, and in the tails.
MIDDLE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
          -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
TAILS = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
         0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
POINTS = 64  # of a period
FAR = 30.0  # from where Bessel functions have a series of 1 / x
NEAR = 0.01  # up to where the second kind has a series of x


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    found: Any = number(coefficients[0], x)
    for one in coefficients[1:]:
        found = found * x + number(one, x)
    return found


def _whole_power(x: Any, exponent: int) -> Any:
    found = number(1, x)
    for _ in range(exponent):
        found = found * x
    return found


def _cotangent_derivative(order: int) -> list[float]:
    """Return the coefficients, highest power first, of cot's derivative as a polynomial of cot."""
    found = np.poly1d([1.0, 0.0])
    for _ in range(order):
        found = -np.poly1d([1.0, 0.0, 1.0]) * found.deriv()
    return [float(one) for one in found.coeffs]


def _polygamma(order: int) -> Callable[[Any], Any]:
    """Return the derivative of digamma: shifted up and then by its series; below 0 by reflection."""
    sign, factorial = (-1) ** (order + 1), math.factorial(order)

    def above(x: Any) -> Any:
        total = number(0, x)
        for k in range(SHIFTS):
            total = total + number(1, x) / _whole_power(x + number(k, x), order + 1)
        z = x + number(SHIFTS, x)
        if order == 0:
            found = te.log(z) - number(0.5, x) / z
            for k, one in enumerate(BERNOULLI):
                found = found - number(one / (2 * k + 2), x) / _whole_power(z, 2 * k + 2)
            return found - total
        found = number(1 / order, x) / _whole_power(z, order)
        found = found + number(0.5, x) / _whole_power(z, order + 1)
        for k, one in enumerate(BERNOULLI):
            rising = math.prod(range(order + 1, order + 2 * k + 2)) / math.factorial(2 * k + 2)
            found = found + number(one * rising, x) / _whole_power(z, order + 2 * k + 2)
        return number(sign * factorial, x) * (total + found)

    def element(x: Any) -> Any:
        zero, one = number(0, x), number(1, x)
        below = x < number(0.5, x)
        near = above(tirx.Select(below, one - x, x))
        turn = x - te.round(x)  # of half a period at most, so that pi does not lose its digits
        cotangent = te.cos(number(math.pi, x) * turn) / te.sin(number(math.pi, x) * turn)
        bent = number(math.pi ** (order + 1), x) * _polynomial(_cotangent_derivative(order), cotangent)
        reflected = number((-1) ** order, x) * near - bent
        pole = tirx.And(x <= zero, tirx.EQ(turn, zero))
        infinity = float("inf")
        at_pole = number(sign * infinity, x)
        if order == 0:
            at_pole = tirx.Select(tirx.EQ(x, zero), number(-infinity, x), number(float("nan"), x))
        return tirx.Select(pole, at_pole, tirx.Select(below, reflected, near))

    return element


def polygamma(node: Node) -> Any:
    order = int(node["n"])
    if order > 20:
        node.refuse(f"derivatives of order {order} are not supported")
    return of_elements(_polygamma(order), "self", dtype=WIDE)(node)


def _inverse_error(y: Any) -> Any:
    one = number(1, y)
    inside = tirx.Select(te.abs(y) < one, y, number(0, y))
    w = number(0, y) - te.log((one - inside) * (one + inside))
    tail = _polynomial(TAILS, te.sqrt(w) - number(3, y))
    x = inside * tirx.Select(w < number(5, y), _polynomial(MIDDLE, w - number(2.5, y)), tail)
    for _ in range(2):
        slope = number(2 / math.sqrt(math.pi), y) * te.exp(number(0, y) - x * x)
        x = x - (library("erf")(x) - inside) / slope
    infinity = number(float("inf"), y)
    edge = tirx.Select(
        tirx.EQ(y, one), infinity, tirx.Select(tirx.EQ(y, -one), -infinity, number(math.nan, y))
    )
    return tirx.Select(te.abs(y) < one, x, edge)


def _scaled_complement(x: Any) -> Any:
    """Erfcx: exp(x^2) erfc(x), far away by its series."""
    far = x > number(20, x)
    close = tirx.Select(far, number(0, x), x)
    inverse = number(1, x) / tirx.Select(far, x * x, number(400, x))
    series = _polynomial((105 / 16, -15 / 8, 0.75, -0.5, 1.0), inverse)
    tail = series / (tirx.Select(far, x, number(20, x)) * number(math.sqrt(math.pi), x))
    return tirx.Select(far, tail, te.exp(close * close) * library("erfc")(close))


def _first_kind(order: int, scaled: bool) -> Callable[[Any], Any]:
    """Return the modified Bessel function of the first kind: a sum over a period, far away a series."""

    def element(x: Any) -> Any:
        size = te.abs(x)
        near = te.min(size, number(FAR, x))
        total = number(0, x)
        for k in range(POINTS // 2 + 1):
            at = math.cos(2 * math.pi * k / POINTS)
            weight = (1 if k in (0, POINTS // 2) else 2) / POINTS * math.cos(2 * math.pi * k * order / POINTS)
            total = total + number(weight, x) * te.exp(near * number(at - 1, x))
        far = te.max(size, number(FAR, x))
        series = _polynomial(_far_series(order, -1), number(1, x) / far)
        series = series / te.sqrt(number(2 * math.pi, x) * far)
        found = tirx.Select(size > number(FAR, x), series, total)
        found = found if scaled else found * te.exp(size)
        found = tirx.Select(x < number(0, x), number(0, x) - found, found) if order else found
        return tirx.Select(te.isnan(x), x, found)

    return element


def _far_series(order: int, sign: int) -> list[float]:
    """Return the coefficients of a Bessel function's series of 1 / x, highest power first."""
    found = [1.0]
    for k in range(1, 10):
        found.append(found[-1] * sign * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return found[::-1]


def _second_kind(order: int, scaled: bool) -> Callable[[Any], Any]:
    """Return the modified Bessel function of the second kind: an integral, near 0 a series."""
    step, steps = 0.125, 80

    def element(x: Any) -> Any:
        zero = number(0, x)
        safe = te.max(te.min(x, number(FAR, x)), number(NEAR, x))
        far = te.max(x, number(FAR, x))
        distant = _polynomial(_far_series(order, 1), number(1, x) / far)
        distant = distant * te.sqrt(number(math.pi / 2, x) / far)
        total = number(0.5, x)
        for k in range(1, steps):
            at = k * step
            rise = number(math.cosh(at) - 1, x)
            total = total + number(math.cosh(order * at), x) * te.exp(zero - safe * rise)
        integral = total * number(step, x)
        small = te.max(te.min(x, number(NEAR, x)), number(1e-300, x))
        log = te.log(small * number(0.5, x)) + number(0.5772156649015329, x)
        square = small * small * number(0.25, x)
        if order == 0:
            series = square - log * (number(1, x) + square)
        else:
            series = number(1, x) / small + small * number(0.5, x) * (log - number(0.5, x))
        found = tirx.Select(x > number(NEAR, x), integral, series * te.exp(small))
        found = tirx.Select(x > number(FAR, x), distant, found)
        found = found if scaled else found * te.exp(zero - te.max(x, zero))
        edge = tirx.Select(tirx.EQ(x, zero), number(float("inf"), x), number(math.nan, x))
        return tirx.Select(x > zero, found, edge)

    return element


def _spherical(x: Any) -> Any:
    """Spherical Bessel function of order 0: sin(x) / x."""
    small = te.abs(x) < number(1e-3, x)
    safe = tirx.Select(small, number(1, x), x)
    found = tirx.Select(small, number(1, x) - x * x / number(6, x), te.sin(safe) / safe)
    infinite = tirx.EQ(te.abs(x), number(float("inf"), x))
    return tirx.Select(infinite, number(0, x), found)


def wide(function: Callable[..., Any]) -> Convert:
    """Return a converter of a function of elements in double precision."""
    return of_elements(function, dtype=WIDE)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "prims.lgamma": library("lgamma"),
    "aten.lgamma": library("lgamma"),
    "prims.digamma": _polygamma(0),
    "aten.digamma": _polygamma(0),
    "prims.erf_inv": _inverse_error,
    "aten.erfinv": _inverse_error,
    "prims.erfcx": _scaled_complement,
    "aten.special_erfcx": _scaled_complement,
    "prims.erfc": library("erfc"),
    "prims.erf": library("erf"),
    "prims.bessel_j0": library("j0"),
    "prims.bessel_j1": library("j1"),
    "aten.special_bessel_j0": library("j0"),
    "aten.special_bessel_j1": library("j1"),
    "aten.special_bessel_y0": library("y0"),
    "aten.special_bessel_y1": library("y1"),
    "prims.bessel_i0": _first_kind(0, False),
    "prims.bessel_i1": _first_kind(1, False),
    "prims.bessel_i0e": _first_kind(0, True),
    "prims.bessel_i1e": _first_kind(1, True),
    "aten.special_modified_bessel_i0": _first_kind(0, False),
    "aten.special_modified_bessel_i1": _first_kind(1, False),
    "aten.special_modified_bessel_k0": _second_kind(0, False),
    "aten.special_modified_bessel_k1": _second_kind(1, False),
    "aten.special_scaled_modified_bessel_k0": _second_kind(0, True),
    "aten.special_scaled_modified_bessel_k1": _second_kind(1, True),
    "prims.spherical_bessel_j0": _spherical,
}
CONVERTERS: dict[str, Convert] = {
    **{f"{name}.default": wide(function) for name, function in FUNCTIONS.items()},
    "aten.polygamma.default": polygamma,
}
