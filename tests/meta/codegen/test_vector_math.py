"""exp, log, tanh, erf and small powers in vectors: how exact, special values, and that they are vectors."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from vector_functions import EXACT, NESTED, POWERS, SPECIAL, check_special, most_off, numbers

from wmsched.codegen import register
from wmsched.toolchain.targets import meta_host_target

LANES = 8


def power(exponent: float):
    return lambda x: tirx.call_intrin("float32", "tirx.pow", x, tirx.const(exponent, "float32"))


FUNCTIONS = {name: power(POWERS[name]) if name in POWERS else getattr(tirx, name) for name in EXACT}


def compiled(function, n: int, *, dtype: str = "float32", config=register.CONFIG, lanes: int = LANES):
    """An executable of the function on `n` elements, in vectors."""
    a = te.placeholder((n,), dtype, name="a")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func([a, te.compute((n,), lambda i: function(a[i]), name="b")])
    )
    (loop,) = schedule.get_loops("b")
    _, inner = schedule.split(loop, [None, lanes])
    schedule.vectorize(inner)
    with tvm.transform.PassContext(config=config):
        return tvm.compile(schedule.mod, target=meta_host_target())


def run(executable, x: np.ndarray) -> np.ndarray:
    out = tvm.runtime.tensor(np.zeros_like(x))
    executable["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_as_exact_as_said(name):
    x = numbers()
    assert most_off(name, x, run(compiled(FUNCTIONS[name], len(x)), x)) <= EXACT[name][1]


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_special_values_are_those_of_c(name):
    check_special(name, run(compiled(FUNCTIONS[name], len(SPECIAL)), SPECIAL))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "square"])
def test_no_call_of_the_c_library_is_left(name):
    function = FUNCTIONS[name]
    called = re.compile(r"\bcall\b.*@(exp|log|erf|tanh|pow)f?\b|\bcall\b.*@llvm\.(exp|log|pow)\.")
    assert not called.search(compiled(function, 64).mod.inspect_source("ll"))
    assert called.search(compiled(function, 64, config={}).mod.inspect_source("ll"))


def test_float64_is_left_to_tvm():
    x = np.linspace(-3, 3, 64)
    assert np.allclose(run(compiled(tirx.exp, 64, dtype="float64"), x), np.exp(x), rtol=1e-14)


def test_a_single_element_is_computed_so_too():
    x = np.linspace(-3, 3, 5, dtype=np.float32)
    assert np.allclose(run(compiled(tirx.tanh, 5, lanes=1), x), np.tanh(x), rtol=2e-7)


@pytest.mark.parametrize("name", NESTED)
def test_functions_of_functions(name):
    """Compiled in vectors they would take a second, hours, half a second each, and 80 seconds."""
    function, exact = NESTED[name]
    executable = compiled(lambda x: function(tirx, x), 64)
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    np.testing.assert_allclose(run(executable, x), exact(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
    called = re.search(r"\bcall\b.*@([\w.]*(?:exp|log|erf|tanh)\w*)", executable.mod.inspect_source("ll"))
    # TVM's own tanh, which mish is left with, takes exp as it takes any
    assert bool(called) == (name in ("mish", "exp thrice"))


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
        milliseconds(compiled(FUNCTIONS[name], len(x), config=config, lanes=16), x)
        for config in (register.CONFIG, {})
    )
    print(f"\n{name}: {theirs:.2f} ms by the C library, {ours:.2f} in vectors, {theirs / ours:.1f} times")
    assert ours < theirs


@pytest.mark.slow
def test_exp_of_masked_numbers_takes_no_longer():
    """Denormal products would take an Intel core nine times as long."""
    x = np.random.default_rng(0).normal(0, 2, 1 << 18).astype(np.float32)
    executable = compiled(tirx.exp, len(x), lanes=16)
    masked = np.full_like(x, np.finfo(np.float32).min)
    assert milliseconds(executable, masked) < 2 * milliseconds(executable, x)
