"""What the tests of mathematics in vectors compare with, in either TVM: numbers, exact values, units."""

from __future__ import annotations

import math

import numpy as np

TINY = float(np.float32(2.0**-149))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def one(tir):
    return tir.const(1.0, "float32")


EXACT = {  # as numpy has it in float64, and units in the last place that float32 may be off
    "exp": (np.exp, 1),
    "log": (np.log, 2),
    "tanh": (np.tanh, 2),
    "erf": (np.vectorize(math.erf), 2),
    "sigmoid": (sigmoid, 3),
    "square": (lambda x: x**2, 1),
    "cube": (lambda x: x**3, 2),
    "fourth": (lambda x: x**4, 2),
}
# Functions of functions, as expressions of a TVM's `tir`, and in float64; of those that nest too deep to be
# compiled in reasonable time the outer ones are left to the C library.
NESTED = {
    "softplus": (lambda tir, x: tir.log(tir.exp(x) + one(tir)), lambda x: np.log(np.exp(x) + 1)),
    "mish": (
        lambda tir, x: x * tir.tanh(tir.log(tir.exp(x) + one(tir))),
        lambda x: x * np.tanh(np.log(np.exp(x) + 1)),
    ),
    "erf of exp": (
        lambda tir, x: x * (tir.erf(x * tir.const(0.5, "float32") + tir.exp(x)) + one(tir)),
        lambda x: x * (np.vectorize(math.erf)(x * 0.5 + np.exp(x)) + 1),
    ),
    "a GRU's": (lambda tir, x: tir.tanh(x + tir.sigmoid(x) * x), lambda x: np.tanh(x + sigmoid(x) * x)),
    "exp thrice": (
        lambda tir, x: tir.exp(tir.exp(tir.exp(x * tir.const(0.1, "float32")))),
        lambda x: np.exp(np.exp(np.exp(x * 0.1))),
    ),
}
POWERS = {"square": 2.0, "cube": 3.0, "fourth": 4.0}


def numbers() -> np.ndarray:
    """Float32 of all sizes and both signs, many where the functions bend."""
    random = np.random.default_rng(0)
    n = 1 << 16
    spread = 10.0 ** random.uniform(-44, 38, n) * random.choice([-1, 1], n)
    near = [random.uniform(-110, 100, n), random.uniform(-6, 6, n), random.uniform(-1.1, 1.1, n)]
    return np.concatenate([spread, *near, random.uniform(0.5, 2, n)]).astype(np.float32)


def units(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """How far off, in units in the last place of what is exact."""
    with np.errstate(over="ignore"):
        size = np.abs(exact.astype(np.float32))
    unit = np.where(np.isfinite(size), np.spacing(np.where(np.isfinite(size), size, 0)), 1)
    return np.abs(found.astype(np.float64) - exact) / np.maximum(unit.astype(np.float64), TINY)


def most_off(name: str, x: np.ndarray, found: np.ndarray) -> float:
    """The most units in the last place that `found` is off, of at least a third of the numbers `x`."""
    with np.errstate(all="ignore"):
        exact = EXACT[name][0](x.astype(np.float64))
        fits = np.isfinite(exact) & (np.abs(exact) < np.finfo(np.float32).max)
    if name == "sigmoid":  # TVM's formula divides by exp(-x), which is infinite before the quotient is 0
        fits &= exact > 2.0**-126
    assert fits.sum() > len(x) / 3
    return float(units(found[fits], exact[fits]).max())


SPECIAL = np.array(
    [
        0.0, -0.0, TINY, -TINY, 1e-39, 3e38, -3e38, np.inf, -np.inf, np.nan,
        1.0, 88.8, -103.0, -104.1, 4.5, -4.5,
    ],
    np.float32,
)  # fmt: skip


def check_special(name: str, found: np.ndarray) -> None:
    """Zeros, infinities, NaN and denormal numbers come out as in C."""
    with np.errstate(all="ignore"):
        expected = EXACT[name][0](SPECIAL.astype(np.float64)).astype(np.float32)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(np.isinf(found), np.isinf(expected))
    np.testing.assert_allclose(found, expected, rtol=4e-7, atol=TINY)
    assert np.array_equal(np.signbit(found[:2]), np.signbit(expected[:2]))
