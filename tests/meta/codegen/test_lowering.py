"""Loops in vectors and prefetches in MetaSchedule's builds: the same passes as in AutoScheduler's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from wmsched.codegen import prefetch
from wmsched.codegen.nodes import SERIAL, loop
from wmsched.codegen.register import CONFIG
from wmsched.codegen.vectorize import in_vectors
from wmsched.toolchain.targets import meta_host_target


def compiled(function, change=None, config=CONFIG):
    schedule = tvm.s_tir.Schedule(function)
    if change is not None:
        change(schedule)
    with tvm.transform.PassContext(config=config):
        return tvm.compile(schedule.mod, target=meta_host_target())


def run(executable, *inputs: np.ndarray, shape) -> np.ndarray:
    out = tvm.runtime.tensor(np.zeros(shape, "float32"))
    executable["main"](*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


def code(executable) -> str:
    return executable.mod.inspect_source("ll")


def rows(n: int, reduce=te.sum, dtype: str = "float32"):
    a = te.placeholder((5, n), dtype, name="a")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([a, te.compute((5,), lambda i: reduce(a[i, k], axis=k), name="b")])


def decomposed(*names: str):
    """A change of a schedule: sums start outside of their loops, as in what is tuned."""

    def change(schedule) -> None:
        for name in names:
            block = schedule.get_sblock(name)
            schedule.decompose_reduction(block, schedule.get_loops(block)[-1])

    return change


@pytest.mark.parametrize("n", [16, 49, 128, 200, 768])
@pytest.mark.parametrize(("reduce", "exact"), [(te.sum, np.sum), (te.max, np.max), (te.min, np.min)])
def test_rows_are_reduced_in_vectors(reduce, exact, n):
    x = np.random.default_rng(n).normal(size=(5, n)).astype("float32")
    executable = compiled(rows(n, reduce), decomposed("b"))
    np.testing.assert_allclose(run(executable, x, shape=(5,)), exact(x, axis=1), rtol=1e-5, atol=1e-5)
    assert "<16 x float>" in code(executable)
    if n > 16:
        assert "<16 x float>" not in code(compiled(rows(n, reduce), decomposed("b"), config={}))


def test_a_maximum_that_begins_at_minus_infinity_stays_there():
    most = te.comm_reducer(lambda x, y: te.max(x, y), lambda dtype: tirx.const(-math.inf, dtype), name="most")
    executable = compiled(rows(768, most), decomposed("b"))
    x = np.random.default_rng(0).normal(size=(5, 768)).astype("float32")
    x[1] = -math.inf
    x[2, 1:] = -math.inf
    np.testing.assert_array_equal(run(executable, x, shape=(5,)), x.max(1))
    assert "<16 x float>" in code(executable)


@pytest.mark.parametrize(("extent", "changed"), [(0, False), (16, True), (20, False), (32, True)])
def test_a_loop_that_does_nothing_stores_nothing(extent, changed):
    x, y = (tirx.decl_buffer((32,), "float32", name=name) for name in "xy")
    v = tirx.Var("v", "int32")
    body = loop(v, extent, SERIAL, tirx.BufferStore(y, tirx.BufferLoad(x, [v]) * 2.0, [v]))
    function = tirx.PrimFunc([x, y], body)
    assert in_vectors(function).same_as(function) != changed


def test_a_softmax_divides_once_a_row():
    a = te.placeholder((6, 64), name="a")
    k, r = te.reduce_axis((0, 64), name="k"), te.reduce_axis((0, 64), name="r")
    most = te.compute((6,), lambda i: te.max(a[i, k], axis=k), name="most")
    exp = te.compute((6, 64), lambda i, j: te.exp(a[i, j] - most[i]), name="exp")
    total = te.compute((6,), lambda i: te.sum(exp[i, r], axis=r), name="total")
    out = te.compute((6, 64), lambda i, j: exp[i, j] / total[i], name="out")
    executable = compiled(te.create_prim_func([a, out]), decomposed("most", "total"))
    x = np.random.default_rng(0).normal(size=(6, 64)).astype("float32")
    exact = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(
        run(executable, x, shape=(6, 64)), exact / exact.sum(1, keepdims=True), rtol=2e-6
    )
    assert "fdiv <16 x float>" not in code(executable)


def product():
    a = te.placeholder((4, 64, 128), name="a")
    b = te.placeholder((4, 2, 128, 32), name="b")
    k = te.reduce_axis((0, 128), name="k")
    tile = lambda n, i, j: te.sum(a[n, i, k] * b[n, j // 32, k, j % 32], axis=k)  # noqa: E731
    return te.create_prim_func([a, b, te.compute((4, 64, 64), tile, name="c")])


def tiled(schedule) -> None:
    block = schedule.get_sblock("c")
    n, i, j, k = schedule.get_loops(block)
    (i, i_in), (j, j_in) = schedule.split(i, [None, 8]), schedule.split(j, [None, 32])
    k_out, k_in = schedule.split(k, [None, 4])
    schedule.reorder(n, i, j, k_out, k_in, i_in, j_in)
    schedule.vectorize(j_in)
    schedule.unroll(i_in)
    schedule.parallel(n)
    schedule.decompose_reduction(block, k_out)


def test_a_product_with_prefetches_is_the_same_product():
    random = np.random.default_rng(0)
    a, b = (random.normal(size=shape).astype("float32") for shape in ((4, 64, 128), (4, 2, 128, 32)))
    plain, ahead = compiled(product(), tiled, config={}), compiled(product(), tiled)
    assert "@llvm.prefetch" not in code(plain) and code(ahead).count("call void @llvm.prefetch") >= 2
    assert f"call void @{prefetch.FUNCTION}" not in code(ahead)  # it is inlined
    outs = [run(each, a, b, shape=(4, 64, 64)) for each in (plain, ahead)]
    np.testing.assert_array_equal(*outs)
    exact = a @ b.transpose(0, 1, 3, 2).reshape(4, 64, 128).swapaxes(1, 2)
    np.testing.assert_allclose(outs[0], exact, atol=1e-4)


def test_lengths_that_are_not_known_stay():
    n = tirx.Var("n", "int32")
    a = te.placeholder((5, n), name="a")
    k = te.reduce_axis((0, n), name="k")
    sums = te.create_prim_func([a, te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="b")])
    executable = compiled(sums, decomposed("b"))
    x = np.random.default_rng(1).normal(size=(5, 48)).astype("float32")
    np.testing.assert_allclose(run(executable, x, shape=(5,)), x.sum(1), rtol=1e-5, atol=1e-5)
