"""exp, log, tanh, erf and small powers in vectors: how exact, special values, and that they are vectors."""

from __future__ import annotations

import math
import re
import time

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from wmsched.backends import vector_math
from wmsched.backends.tir_workload import host_target

LANES = 8
TINY = float(np.float32(2.0**-149))


def power(exponent: float):
    return lambda x: tirx.call_intrin("float32", "tirx.pow", x, tirx.const(exponent, "float32"))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {  # in TIR, as numpy has it in float64, and units in the last place that it may be off
    "exp": (tirx.exp, np.exp, 1),
    "log": (tirx.log, np.log, 2),
    "tanh": (tirx.tanh, np.tanh, 2),
    "erf": (tirx.erf, np.vectorize(math.erf), 2),
    "sigmoid": (tirx.sigmoid, sigmoid, 3),
    "square": (power(2.0), lambda x: x**2, 1),
    "cube": (power(3.0), lambda x: x**3, 2),
    "fourth": (power(4.0), lambda x: x**4, 2),
}


def compiled(function, n: int, *, dtype: str = "float32", config=vector_math.CONFIG, lanes: int = LANES):
    """An executable of the function on `n` elements, in vectors."""
    a = te.placeholder((n,), dtype, name="a")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func([a, te.compute((n,), lambda i: function(a[i]), name="b")])
    )
    (loop,) = schedule.get_loops("b")
    _, inner = schedule.split(loop, [None, lanes])
    schedule.vectorize(inner)
    with tvm.transform.PassContext(config=config):
        return tvm.compile(schedule.mod, target=host_target())


def run(executable, x: np.ndarray) -> np.ndarray:
    out = tvm.runtime.tensor(np.zeros_like(x))
    executable["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


def units(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """How far off, in units in the last place of what is exact."""
    with np.errstate(over="ignore"):
        size = np.abs(exact.astype(np.float32))
    unit = np.where(np.isfinite(size), np.spacing(np.where(np.isfinite(size), size, 0)), 1)
    return np.abs(found.astype(np.float64) - exact) / np.maximum(unit.astype(np.float64), TINY)


def numbers() -> np.ndarray:
    """Float32 of all sizes and both signs, many where the functions bend."""
    random = np.random.default_rng(0)
    n = 1 << 16
    spread = 10.0 ** random.uniform(-44, 38, n) * random.choice([-1, 1], n)
    near = [random.uniform(-110, 100, n), random.uniform(-6, 6, n), random.uniform(-1.1, 1.1, n)]
    return np.concatenate([spread, *near, random.uniform(0.5, 2, n)]).astype(np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_as_exact_as_said(name):
    function, reference, allowed = FUNCTIONS[name]
    x = numbers()
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        fits = np.isfinite(exact) & (np.abs(exact) < np.finfo(np.float32).max)
    found = run(compiled(function, len(x)), x)
    off = units(found[fits], exact[fits])
    if name == "sigmoid":  # TVM's formula divides by exp(-x), which is infinite before the quotient is 0
        off = off[exact[fits] > 2.0**-126]
    assert fits.sum() > len(x) / 3 and off.max() <= allowed


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_special_values_are_those_of_c(name):
    function, reference, _ = FUNCTIONS[name]
    zeros, large = [0.0, -0.0, TINY, -TINY, 1e-39], [3e38, -3e38, math.inf, -math.inf, math.nan]
    x = np.array([*zeros, *large, 1.0, 88.8, -103.0, -104.1, 4.5, -4.5], np.float32)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64)).astype(np.float32)
    found = run(compiled(function, len(x)), x)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(np.isinf(found), np.isinf(expected))
    np.testing.assert_allclose(found, expected, rtol=4e-7, atol=TINY)
    assert np.array_equal(np.signbit(found[:2]), np.signbit(expected[:2]))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "square"])
def test_no_call_of_the_c_library_is_left(name):
    function, _, _ = FUNCTIONS[name]
    called = re.compile(r"\bcall\b.*@(exp|log|erf|tanh|pow)f?\b|\bcall\b.*@llvm\.(exp|log|pow)\.")
    assert not called.search(compiled(function, 64).mod.inspect_source("ll"))
    assert called.search(compiled(function, 64, config={}).mod.inspect_source("ll"))


def test_float64_is_left_to_tvm():
    x = np.linspace(-3, 3, 64)
    assert np.allclose(run(compiled(tirx.exp, 64, dtype="float64"), x), np.exp(x), rtol=1e-14)


def test_a_single_element_is_computed_so_too():
    x = np.linspace(-3, 3, 5, dtype=np.float32)
    assert np.allclose(run(compiled(tirx.tanh, 5, lanes=1), x), np.tanh(x), rtol=2e-7)


def test_an_argument_that_is_an_expression_is_computed_once():
    def gelu(x):
        return x * (tirx.erf(x * tirx.const(0.5, "float32") + tirx.exp(x)) + tirx.const(1.0, "float32"))

    x = np.linspace(-3, 3, 64, dtype=np.float32)
    wide = x.astype(np.float64)
    exact = wide * (np.vectorize(math.erf)(wide * 0.5 + np.exp(wide)) + 1)
    np.testing.assert_allclose(run(compiled(gelu, 64), x), exact, rtol=1e-5, atol=1e-6)


def test_powers_of_other_exponents_are_tvm_s():
    x = np.linspace(0.5, 3, 64, dtype=np.float32)
    assert np.allclose(run(compiled(power(1.7), 64), x), x**1.7, rtol=1e-6)


def milliseconds(executable, x: np.ndarray) -> float:
    """The least of seven runs."""
    a, b = tvm.runtime.tensor(x), tvm.runtime.tensor(np.zeros_like(x))
    executable["main"](a, b)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        executable["main"](a, b)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "cube"])
def test_they_take_less_time_than_the_c_library(name):
    """``pytest -m slow -s`` prints what a million elements take, and how many times less."""
    x = np.random.default_rng(0).normal(0, 2, 1 << 20).astype(np.float32)
    x = np.abs(x) if name == "log" else x
    ours, theirs = (
        milliseconds(compiled(FUNCTIONS[name][0], len(x), config=config, lanes=16), x)
        for config in (vector_math.CONFIG, {})
    )
    print(f"\n{name}: {theirs:.2f} ms by the C library, {ours:.2f} in vectors, {theirs / ours:.1f} times")
    assert ours < theirs
