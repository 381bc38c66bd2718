"""Indices as sums over loops, fused ones taken apart: against the indices themselves at each step."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tir

from wmsched.codegen.nodes import SERIAL, affine, coefficient, loop, same, steps_of, substitute

v, w = tir.Var("v", "int32"), tir.Var("w", "int32")
LOOPS = [loop(v, 48, SERIAL, tir.Evaluate(0)), loop(w, 6, SERIAL, tir.Evaluate(0))]
OPERATIONS = {
    tir.Add: np.add,
    tir.Sub: np.subtract,
    tir.Mul: np.multiply,
    tir.FloorDiv: np.floor_divide,
    tir.FloorMod: np.mod,
}


def div(a, b):
    return tir.floordiv(a, b)


def mod(a, b):
    return tir.floormod(a, b)


def value(node, given):
    if isinstance(node, tir.Var):
        return given[node.name]
    if isinstance(node, tir.IntImm):
        return int(node)
    return OPERATIONS[type(node)](value(node.a, given), value(node.b, given))


@pytest.mark.parametrize(
    "index",
    [
        v * 7 + w + 3,
        div(v, 16) * 1000 + mod(v, 16) * 10 + w,
        div(mod(v, 24), 4) * 100 + div(v, 24) * 7 + mod(v, 4),
        div(v * 6 + w, 6) * 5 + w * 2,
        div(v * 8 + w, 8) + mod(v * 8 + w, 8),
        mod(div(v, 4), 3) * 50 + div(div(v, 4), 3),
        (div(v, 12) + 2) * 3 - 4,
    ],
)
def test_an_index_is_the_sum_over_its_steps(index):
    steps = steps_of(index, LOOPS)
    strides, base = affine(index, steps)
    given = dict(zip("vw", np.meshgrid(np.arange(48), np.arange(6), indexing="ij")))
    assert [(step.loop.loop_var.name, step.extent) for step in steps][-1] == ("w", 6)
    assert np.prod([step.extent for step in steps]) == 48 * 6
    total = int(base) + sum(value(step.value, given) * stride for step, stride in zip(steps, strides))
    np.testing.assert_array_equal(total, value(index, given))


@pytest.mark.parametrize("index", [v * w, div(v + w, 5), mod(v, 5), mod(v * 3, 4), div(v * 8 + w, 4)])
def test_other_indices_are_none(index):
    assert affine(index, steps_of(index, LOOPS)) is None


def test_what_an_index_grows_by():
    assert [coefficient(w * 3 + v - w, each) for each in (v, w)] == [1, 2]
    assert coefficient(v * w, v) is None and coefficient(div(v, 2), v) is None
    assert coefficient(div(w, 2) * 4, v) == 0
    nearest = tir.Cast("int32", tir.round(tir.Cast("float32", v) * 0.5))  # an operation that is not known
    for index in (nearest, tir.max(nearest, 0), tir.min(tir.max(nearest, 0), 7) * 16 + w):
        assert coefficient(index, v) is None and coefficient(index, w) is None


def test_expressions_are_compared_and_put_into():
    assert same(v * 2 + w, v * 2 + w) and not same(v * 2 + w, w * 2 + v) and not same(v + 1, v + 2)
    assert same(substitute(v * 2 + w, v, w), w * 2 + w)
