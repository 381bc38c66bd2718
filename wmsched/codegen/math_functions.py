"""Vectorised exp, log, tanh, sigmoid, erf and small powers for CPUs: arithmetic instead of a call an element.

TVM makes LLVM call the C library's expf, logf, erff and powf for one element at a time; tanh and sigmoid use
expf. GPT-2's activation then takes longer than the matrix product before it. Here they are float32
polynomials that vectorise with the loop. exp uses Cody and Waite's range reduction. tanh and erf use an odd
polynomial near 0; farther out tanh uses exp, and erf a polynomial of 1 - erf. The coefficients interpolate
Python's own functions at Chebyshev points; they are computed on import.

The error is at most 2 units in the last place, and 3 for the sigmoid
(`tests/meta/codegen/test_vector_math.py`; TVM's own tanh loses all digits near 0). NaN, infinities and
denormal results are as in C, but for the sigmoid's denormal results, which are 0. Types other than float32
are left to TVM. The expressions suit either TVM: `codegen.register` installs them in MetaSchedule's,
`ansor.codegen` in AutoScheduler's.
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
LN2_HIGH = float(np.float32(math.floor(LN2 * 2**15) / 2**15))  # 15 bits: exact times an integer
LN2_LOW = LN2 - LN2_HIGH
EXP_MOST, EXP_LEAST = 89.0, -104.0  # beyond, exp is infinity and 0 in float32
TANH_SMALL, TANH_MOST = 0.625, 10.0  # exp's formula loses digits below the first; tanh is 1 above the second
SIGMOID_LEAST, SIGMOID_MOST = -88.0, 25.0  # it is 0 below the first but for denormals, and 1 above the second
ERF_SMALL, ERF_MOST = 1.0, 4.0  # above the second, erf is 1 in float32
LEAST_NORMAL, DENORMAL_SHIFT = 2.0**-126, 23  # a denormal number times 2^23 is a normal one
ROOT_HALF_BITS = int(np.float32(math.sqrt(0.5)).view(np.int32))
POWERS = (2, 3, 4)

#: Visits of an argument by the simplifier for each function. It inlines a bound value at each use, so the
#: numbers of nested functions multiply.
GROWTH = {"exp": 100, "sigmoid": 100, "log": 150, "tanh": 75, "erf": 50, "pow": 4}
PARTS = ("a", "b", "value", "condition", "true_value", "false_value", "body")  # fields
MAX_GROWTH = 30_000  # visits, about a second; exp of exp of exp would take 80 s


def polynomial(function: Callable[[float], float], low: float, high: float, degree: int) -> list[float]:
    """Return the Chebyshev interpolant's coefficients in ``x - (low + high) / 2``, constant first."""
    middle, half = (low + high) / 2, (high - low) / 2
    series = chebyshev.chebinterpolate(lambda t: np.vectorize(function)(middle + half * t), degree)
    return [float(c / half**k) for k, c in enumerate(chebyshev.cheb2poly(series))]


def _exp_rest(r: float) -> float:
    """Return (exp(r) - 1 - r) / r^2 by its series, which is exact near 0."""
    return sum(r**k / math.factorial(k + 2) for k in range(14))


def _tanh_rest(s: float) -> float:
    """Return (tanh(x) / x - 1) / x^2 for s = x^2."""
    x = math.sqrt(max(s, 1e-6))
    return (math.tanh(x) / x - 1.0) / (x * x)


def _erf_rest(s: float) -> float:
    """Return erf(x) / x - 1 for s = x^2."""
    x = math.sqrt(max(s, 1e-12))
    return math.erf(x) / x - 1.0


def _log_rest(f: float) -> float:
    """Return (log(1 + f) - f) / f^2, by its series near 0."""
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
    """Builds expressions of one type, in which each shared value is bound to a variable once.

    Parameters
    ----------
    dtype : str
        "float32" or a vector of it.

    Examples
    --------
    >>> build = Builder("float32x16")
    >>> x = build.named(argument)
    >>> expression = build.close(build.exp(x))
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.whole = dtype.replace("float", "int")
        self._bound: list[tuple[Any, Any]] = []

    def number(self, value: float, dtype: str | None = None) -> Any:
        return tir.const(value, dtype or self.dtype)

    def named(self, value: Any) -> Any:
        """Return a variable bound to `value`."""
        variable = tir.Var(f"m{len(self._bound)}", _dtype(value))
        self._bound.append((variable, value))
        return variable

    def close(self, value: Any) -> Any:
        """Return `value` wrapped in the bindings of all variables."""
        for variable, bound in reversed(self._bound):
            value = tir.Let(variable, bound, value)
        return value

    def horner(self, coefficients: list[float], x: Any) -> Any:
        total = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = total * x + self.number(c)
        return total

    def exp(self, x: Any) -> Any:
        """Return exp of a named expression; NaN stays NaN.

        Where the result is 0, as for masked attention, `x` does not enter the arithmetic: denormal products
        cost an Intel core some hundred cycles each.
        """
        most, least, zero = self.number(EXP_MOST), self.number(EXP_LEAST), self.number(0.0)
        p, k = self._exp_parts(self.named(tir.Select(x > least, tir.Select(x < most, x, most), zero)))
        # two factors, because 2^k may exceed the exponents of normal numbers at both ends
        half = self.named(k >> self.number(1, self.whole))
        scaled = p * self._power_of_two(half) * self._power_of_two(k - half)
        return tir.Select(x > least, scaled, tir.Select(tir.isnan(x), x, zero))

    def exp_of_negative(self, x: Any) -> Any:
        """Return exp of a named expression that is not positive, in fewer operations than `exp`.

        Results below the least normal number are 0. NaN stays NaN.
        """
        least = self.number(SIGMOID_LEAST + 1.0)
        p, k = self._exp_parts(self.named(tir.Select(x < least, least, x)))  # in this order NaN stays NaN
        bits = tir.reinterpret(self.whole, p) + (k << self.number(23, self.whole))
        return tir.Select(x < least, self.number(0.0), tir.reinterpret(self.dtype, bits))

    def _exp_parts(self, x: Any) -> tuple[Any, Any]:
        """Return p in [sqrt(1/2), sqrt(2)] and a named integer k, with exp(x) = p 2^k."""
        n = self.named(tir.nearbyint(x * self.number(1.0 / LN2)))
        r = self.named(n * self.number(-LN2_LOW) + (n * self.number(-LN2_HIGH) + x))
        p = (self.horner(EXP, r) * r) * r + r + self.number(1.0)
        return p, self.named(n.astype(self.whole))

    def _power_of_two(self, k: Any) -> Any:
        bits = (k + self.number(127, self.whole)) << self.number(23, self.whole)
        return tir.reinterpret(self.dtype, bits)

    def log(self, x: Any) -> Any:
        """Return log of a named expression, as k log 2 + log of the mantissa in [sqrt(1/2), sqrt(2)]."""
        whole = self.whole
        denormal = x < self.number(LEAST_NORMAL)  # not named: TVM's analyzer fails on boolean vectors
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
        """Return tanh of a named expression."""
        size = self.named(tir.abs(x))
        s = self.named(x * x)
        # times x at the end, so that -0 stays -0
        near = (self._about(TANH, s, TANH_SMALL**2) * s + self.number(1.0)) * x
        p, k = self._exp_parts(self.named(self._at_most(TANH_MOST, size) * self.number(2.0)))
        far = self.number(1.0) - self.number(2.0) / (p * self._power_of_two(k) + self.number(1.0))
        return tir.Select(size < self.number(TANH_SMALL), near, self._signed(far, x))

    def erf(self, x: Any) -> Any:
        """Return erf of a named expression."""
        size = self.named(tir.abs(x))
        s = self.named(x * x)
        near = (self._about(ERF, s, ERF_SMALL**2) + self.number(1.0)) * x
        held = self.named(self._at_most(ERF_MOST, size))
        middle = self.named(held - self.number((ERF_SMALL + ERF_MOST) / 2))
        far = self.number(1.0) - self.horner(ERFC, middle)
        return tir.Select(size < self.number(ERF_SMALL), near, self._signed(far, x))

    def sigmoid(self, x: Any) -> Any:
        """Return 1 / (1 + exp(-x)) of a named expression, in half the operations of `exp` and a division.

        The argument of this exp is held where 2^k is a normal number, so one addition to its bits scales it.
        """
        least, most = self.number(SIGMOID_LEAST), self.number(SIGMOID_MOST)
        above = self.named(tir.Select(x < least, least, x))  # in this order NaN stays NaN
        p, k = self._exp_parts(self.named(self.number(0.0) - tir.Select(above > most, most, above)))
        bits = tir.reinterpret(self.whole, p) + (k << self.number(23, self.whole))
        found = self.number(1.0) / (tir.reinterpret(self.dtype, bits) + self.number(1.0))
        return tir.Select(x < least, self.number(0.0), found)

    def _about(self, coefficients: list[float], s: Any, high: float) -> Any:
        return self.horner(coefficients, self.named(s - self.number(high / 2)))

    def _at_most(self, limit: float, x: Any) -> Any:
        """Return min(x, limit); NaN stays NaN."""
        most = self.number(limit)
        return tir.Select(x > most, most, x)

    def _signed(self, size: Any, x: Any) -> Any:
        """Return `size` with the sign of `x`; uses `size` once."""
        return size * tir.Select(x < self.number(0.0), self.number(-1.0), self.number(1.0))


def _growth(expression: Any) -> int:
    """Return the largest product of `GROWTH` along nested functions in an expression."""
    name = getattr(getattr(expression, "op", None), "name", "").rpartition(".")[2]
    inside = [getattr(expression, part) for part in PARTS if hasattr(expression, part)]
    inside += getattr(expression, "args", ())
    return GROWTH.get(name, 1) * max((_growth(one) for one in inside), default=1)


def _rule(name: str) -> Callable[[Any], Any]:
    """Return a rule that lowers calls of a function to arithmetic.

    It returns a call unchanged if its type is not float32, or if nested functions would take long to compile.
    """

    def lower(call: Any) -> Any:
        if not _float32(call) or _growth(call) > MAX_GROWTH:
            return call
        build = Builder(_dtype(call))
        x = build.named(call.args[0])
        return build.close(getattr(build, name)(x))

    return lower


def _power(call: Any) -> Any:
    """Lower x^2, x^3 and x^4 to products; LLVM does so only for x^2."""
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
    **{name: _rule(name) for name in ("exp", "log", "tanh", "sigmoid", "erf")},
    "pow": _power,
}
