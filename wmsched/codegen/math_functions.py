"""exp, log, tanh, erf and small powers in vectors, for processors: arithmetic, no call for each element.

TVM has LLVM call the C library's `expf` (`tanh` and `sigmoid` are made of it), `logf`, `erff` and `powf`
for one element at a time, however wide the loop around it: GPT-2's activation takes longer than the product
before it. Here they are polynomials in float32, which the loop's vectors carry: exp by Cody and Waite's
reduction, tanh and erf by an odd polynomial near 0, further out tanh by exp, erf by a polynomial of 1 - erf.
The coefficients are interpolated at Chebyshev points, on import, from Python's own functions.

They are at most 2 units in the last place off, and the sigmoid that TVM makes of exp 3
(`tests/meta/test_vector_math.py`; TVM's tanh loses all digits near 0). NaN, infinities and denormal results
are C's. Other types than float32 are left to TVM. The expressions are of either TVM; `vector_math` puts them
into MetaSchedule's, `ansor_math` into AutoScheduler's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

try:
    from tvm import tirx as tir
except ImportError:  # AutoScheduler's TVM has the older name
    from tvm import tir

LN2 = math.log(2.0)
LN2_HIGH = float(np.float32(math.floor(LN2 * 2**15) / 2**15))  # 15 bits: times a whole number it is exact
LN2_LOW = LN2 - LN2_HIGH
EXP_MOST, EXP_LEAST = 89.0, -104.0  # beyond, float32 has infinity and 0
TANH_SMALL, TANH_MOST = 0.625, 10.0  # below, 1 - 2 / (exp(2 x) + 1) would lose digits; from there on it is 1
ERF_SMALL, ERF_MOST = 1.0, 4.0  # from there on erf is 1 in float32
LEAST_NORMAL, DENORMAL_SHIFT = 2.0**-126, 23  # a denormal number times 2^23 is a normal one
ROOT_HALF_BITS = int(np.float32(math.sqrt(0.5)).view(np.int32))
POWERS = (2, 3, 4)

#: How often the simplifier meets an argument while a function of it is compiled: it puts a value in the place
#: of its name each time that is used, so where functions nest these numbers multiply.
GROWTH = {"exp": 100, "sigmoid": 100, "log": 150, "tanh": 75, "erf": 50, "pow": 4}
PARTS = ("a", "b", "value", "condition", "true_value", "false_value", "body")  # of an expression, and `args`
MOST_GROWTH = 30_000  # about a second; exp of exp of exp would take 80


def polynomial(function: Callable[[float], float], low: float, high: float, degree: int) -> list[float]:
    """Coefficients, constant first, of the interpolant in ``x - (low + high) / 2`` at Chebyshev points."""
    middle, half = (low + high) / 2, (high - low) / 2
    series = chebyshev.chebinterpolate(lambda t: np.vectorize(function)(middle + half * t), degree)
    return [float(c / half**k) for k, c in enumerate(chebyshev.cheb2poly(series))]


def _exp_rest(r: float) -> float:
    """(exp(r) - 1 - r) / r^2, by its series, which loses nothing near 0."""
    return sum(r**k / math.factorial(k + 2) for k in range(14))


def _tanh_rest(s: float) -> float:
    """(tanh(x) / x - 1) / x^2 of s = x^2."""
    x = math.sqrt(max(s, 1e-6))
    return (math.tanh(x) / x - 1.0) / (x * x)


def _erf_rest(s: float) -> float:
    """erf(x) / x - 1 of s = x^2."""
    x = math.sqrt(max(s, 1e-12))
    return math.erf(x) / x - 1.0


def _log_rest(f: float) -> float:
    """(log(1 + f) - f) / f^2, by its series near 0."""
    if abs(f) < 0.01:
        return sum((-f) ** k * -1.0 / (k + 2) for k in range(8))
    return (math.log1p(f) - f) / (f * f)


EXP = polynomial(_exp_rest, -LN2 / 2, LN2 / 2, 5)
TANH = polynomial(_tanh_rest, 0.0, TANH_SMALL**2, 5)
ERF = polynomial(_erf_rest, 0.0, ERF_SMALL**2, 7)
LOG_LOW, LOG_HIGH = math.sqrt(0.5) - 1.0, math.sqrt(2.0) - 1.0
LOG = polynomial(_log_rest, LOG_LOW, LOG_HIGH, 9)
ERFC = polynomial(math.erfc, ERF_SMALL, ERF_MOST, 14)


class Builder:
    """Expressions of one type, each named once, however often it is used.

    Parameters
    ----------
    dtype : str
        "float32" or a vector of it.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.whole = dtype.replace("float", "int")
        self._bound: list[tuple[Any, Any]] = []

    def number(self, value: float, dtype: str | None = None) -> Any:
        return tir.const(value, dtype or self.dtype)

    def named(self, value: Any) -> Any:
        """`value` as a variable."""
        variable = tir.Var(f"m{len(self._bound)}", _dtype(value))
        self._bound.append((variable, value))
        return variable

    def close(self, value: Any) -> Any:
        """`value` with the variables around it."""
        for variable, bound in reversed(self._bound):
            value = tir.Let(variable, bound, value)
        return value

    def horner(self, coefficients: list[float], x: Any) -> Any:
        total = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = total * x + self.number(c)
        return total

    def exp(self, x: Any) -> Any:
        """exp of a named expression; NaN stays so.

        Where the result is 0, as of what attention masks, nothing is computed of `x`: products that come out
        denormal take an Intel core some hundred cycles each.
        """
        most, least, zero = self.number(EXP_MOST), self.number(EXP_LEAST), self.number(0.0)
        p, k = self._exp_parts(self.named(tir.Select(x > least, tir.Select(x < most, x, most), zero)))
        # in two factors, for k reaches beyond the exponents of normal numbers at both ends
        half = self.named(k >> self.number(1, self.whole))
        scaled = p * self._power_of_two(half) * self._power_of_two(k - half)
        return tir.Select(x > least, scaled, tir.Select(tir.isnan(x), x, zero))

    def _exp_parts(self, x: Any) -> tuple[Any, Any]:
        """p, between roots of 1/2 and 2, and a named whole k, with exp(x) = p 2^k."""
        n = self.named(tir.nearbyint(x * self.number(1.0 / LN2)))
        r = self.named(n * self.number(-LN2_LOW) + (n * self.number(-LN2_HIGH) + x))
        p = (self.horner(EXP, r) * r) * r + r + self.number(1.0)
        return p, self.named(n.astype(self.whole))

    def _power_of_two(self, k: Any) -> Any:
        bits = (k + self.number(127, self.whole)) << self.number(23, self.whole)
        return tir.reinterpret(self.dtype, bits)

    def log(self, x: Any) -> Any:
        """log of a named expression: its power of two's, and that of the rest between roots of 1/2 and 2."""
        whole = self.whole
        denormal = x < self.number(LEAST_NORMAL)  # not named: TVM's analyzer takes no vector of truths
        normal = self.named(tir.Select(denormal, x * self.number(2.0**DENORMAL_SHIFT), x))
        bits = self.named(tir.reinterpret(whole, normal))
        k = self.named((bits - self.number(ROOT_HALF_BITS, whole)) >> self.number(23, whole))
        f = self.named(tir.reinterpret(self.dtype, bits - (k << self.number(23, whole))) - self.number(1.0))
        shift = tir.Select(denormal, self.number(-float(DENORMAL_SHIFT)), self.number(0.0))
        n = self.named(k.astype(self.dtype) + shift)
        middle = self.named(f - self.number((LOG_LOW + LOG_HIGH) / 2))
        rest = self.named(self.horner(LOG, middle) * f * f + n * self.number(LN2_LOW))
        found = self.named(n * self.number(LN2_HIGH) + (rest + f))
        infinity, nan = self.number(math.inf), self.number(math.nan)
        none = tir.Select(x < self.number(0.0), nan, tir.Select(tir.isnan(x), x, -infinity))
        return tir.Select(x > self.number(0.0), tir.Select(x < infinity, found, x), none)

    def tanh(self, x: Any) -> Any:
        """tanh of a named expression."""
        size = self.named(tir.abs(x))
        s = self.named(x * x)
        # times x at the end, for -0 is to stay -0
        near = (self._about(TANH, s, TANH_SMALL**2) * s + self.number(1.0)) * x
        p, k = self._exp_parts(self.named(self._at_most(TANH_MOST, size) * self.number(2.0)))
        far = self.number(1.0) - self.number(2.0) / (p * self._power_of_two(k) + self.number(1.0))
        return tir.Select(size < self.number(TANH_SMALL), near, self._signed(far, x))

    def erf(self, x: Any) -> Any:
        """erf of a named expression."""
        size = self.named(tir.abs(x))
        s = self.named(x * x)
        near = (self._about(ERF, s, ERF_SMALL**2) + self.number(1.0)) * x
        held = self.named(self._at_most(ERF_MOST, size))
        middle = self.named(held - self.number((ERF_SMALL + ERF_MOST) / 2))
        far = self.number(1.0) - self.horner(ERFC, middle)
        return tir.Select(size < self.number(ERF_SMALL), near, self._signed(far, x))

    def _about(self, coefficients: list[float], s: Any, high: float) -> Any:
        return self.horner(coefficients, self.named(s - self.number(high / 2)))

    def _at_most(self, limit: float, x: Any) -> Any:
        """NaN stays so."""
        most = self.number(limit)
        return tir.Select(x > most, most, x)

    def _signed(self, size: Any, x: Any) -> Any:
        """`size`, which is used once, with the sign of `x`."""
        return size * tir.Select(x < self.number(0.0), self.number(-1.0), self.number(1.0))


def _growth(expression: Any) -> int:
    """The largest product of `GROWTH` over functions in an expression that lie in one another."""
    name = getattr(getattr(expression, "op", None), "name", "").rpartition(".")[2]
    inside = [getattr(expression, part) for part in PARTS if hasattr(expression, part)]
    inside += getattr(expression, "args", ())
    return GROWTH.get(name, 1) * max((_growth(one) for one in inside), default=1)


def _rule(name: str) -> Callable[[Any], Any]:
    """Takes a call of that function to its arithmetic; to itself one of another type than float32, or with
    such functions nested so deep in its argument that compiling it would take long.
    """

    def lower(call: Any) -> Any:
        if not _float32(call) or _growth(call) > MOST_GROWTH:
            return call
        build = Builder(_dtype(call))
        x = build.named(call.args[0])
        return build.close(getattr(build, name)(x))

    return lower


def _power(call: Any) -> Any:
    """x^2, x^3 and x^4 as products: LLVM makes one of the square alone."""
    exponent = call.args[1]
    exponent = exponent.value if isinstance(exponent, tir.Broadcast) else exponent
    value = getattr(exponent, "value", None)
    if not _float32(call) or value not in POWERS:
        return call
    build = Builder(_dtype(call))
    x = build.named(call.args[0])
    square = build.named(x * x)
    return build.close({2: square, 3: square * x, 4: square * square}[int(value)])


def _float32(call: Any) -> bool:
    return _dtype(call).partition("x")[0] == "float32"


def _dtype(expression: Any) -> str:
    return str(expression.ty.dtype) if hasattr(expression, "ty") else str(expression.dtype)


RULES: dict[str, Callable[[Any], Any]] = {
    **{name: _rule(name) for name in ("exp", "log", "tanh", "erf")},
    "pow": _power,
}
