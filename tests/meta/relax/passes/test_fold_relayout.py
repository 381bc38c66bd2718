"""Layouts that schedules ask for, as numpy's reshape and transpose."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from built import TARGET
from tvm import te

from wmsched.relax.passes.fold_relayout import relayout


def program(shape, result, index):
    """`result[index(i...)] = weight[i...]` as MetaSchedule writes it: a block over the weight's axes."""
    axes = ", ".join(f"i{k}" for k in range(len(shape)))
    names = ", ".join(f"v{k}" for k in range(len(shape)))
    extents = ", ".join(str(extent) for extent in shape)
    source = f"""
@T.prim_func(s_tir=True)
def main(weight: T.Buffer({tuple(shape)}, "float32"), packed: T.Buffer({tuple(result)}, "float32")):
    for {axes} in T.grid({extents}):
        with T.sblock("packed"):
            {names} = T.axis.remap("{"S" * len(shape)}", [{axes}])
            T.reads(weight[{names}])
            T.writes(packed[{index}])
            packed[{index}] = weight[{names}]
"""
    return tvm.script.from_source(source)


def built(function, data, shape):
    library = tvm.tirx.build(tvm.IRModule({"main": function}), TARGET)
    given, result = tvm.runtime.tensor(data, tvm.cpu()), tvm.runtime.empty(shape, "float32", tvm.cpu())
    library["main"](given, result)
    return result.numpy()


@pytest.mark.parametrize(
    ("shape", "result", "index"),
    [
        ((3, 3, 3, 32), (2, 3, 3, 3, 16), "v3 // 16, v0, v2, v1, v3 % 16"),
        ((24, 40), (5, 3, 8, 8), "v1 // 8, v0 // 8, v0 % 8, v1 % 8"),
        ((24, 40), (2, 5, 24, 4), "v1 // 20, v1 % 20 // 4, v0, v1 % 4"),
        ((1, 1, 6, 8), (4, 1, 6, 2), "v3 // 2, 0, v2, v3 % 2"),
        ((6, 8), (8, 6), "v1, v0"),
        ((16,), (2, 2, 4), "v0 // 8, v0 // 4 % 2, v0 % 4"),
    ],
)
def test_the_elements_are_where_the_program_puts_them(shape, result, index):
    function = program(shape, result, index)
    data = np.random.default_rng(0).random(shape, dtype="float32")
    found = relayout(function)
    assert found is not None
    ours = found(data)
    assert ours.shape == result
    assert ours.flags.c_contiguous
    assert (ours == built(function, data, result)).all()


@pytest.mark.parametrize(
    ("shape", "result", "index"),
    [
        ((6, 8), (48,), "v0 * 8 + v1"),  # of two variables at once
        ((6, 8), (6, 12), "v0, v1 + 2"),  # with room beside it
        ((6, 8), (6, 8), "v0, 7 - v1"),  # backwards
        ((6, 8), (6, 4), "v0, v1 % 4"),  # one over the other
        ((6, 8), (6, 8, 2), "v0, v1, 0"),  # some of it is left as it was
        ((6, 8), (6, 8), "v0, T.min(v1, 7)"),
    ],
)
def test_others_are_left(shape, result, index):
    assert relayout(program(shape, result, index)) is None


def test_arithmetic_is_no_layout():
    x = te.placeholder((4, 4), name="x")
    more = te.compute((4, 4), lambda i, j: x[i, j] + 1, name="more")
    assert relayout(te.create_prim_func([x, more])) is None
    same = te.compute((4, 4), lambda i, j: x[j, i], name="same")  # over the result's axes
    assert relayout(te.create_prim_func([x, same])) is None
    y = te.placeholder((4, 4), name="y")
    both = te.compute((4, 4), lambda i, j: x[i, j] + y[i, j], name="both")
    assert relayout(te.create_prim_func([x, y, both])) is None
