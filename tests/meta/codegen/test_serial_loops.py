"""Loops of little work are on one thread, whatever the schedule says, and others stay in parallel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from built import TARGET
from tvm.script import tirx as T

from wmsched.codegen.nodes import children, tir
from wmsched.codegen.register import CONFIG
from wmsched.codegen.serial_loops import MAX_SERIAL_OPERATIONS, on_one_thread, work

PARALLEL = tir.ForKind.PARALLEL


def elementwise(turns: int, *, of=lambda x: x + T.float32(1)):
    """Vectors of 16 elements, in a parallel loop."""

    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        A = T.match_buffer(a, (turns * 16,))
        B = T.match_buffer(b, (turns * 16,))
        for i in T.parallel(turns):
            for j in T.vectorized(16):
                B[i * 16 + j] = of(A[i * 16 + j])

    return main


def loops(function):
    found = []

    def look(node):
        if isinstance(node, tir.For):
            found.append(node)
        for part in children(node):
            look(part)

    look(function.body)
    return found


def test_work_is_counted_by_vectors():
    outer, inner = loops(elementwise(4))
    assert outer.kind == PARALLEL
    # of each of the two vectors of eight: a store, an addition, a load, and three indices' two operations
    assert work(inner) == 2 * (1 + 1 + 1 + 2 + 2)
    assert work(outer) == 4 * work(inner)
    (_, tanh) = loops(elementwise(4, of=T.tanh))
    assert work(tanh) == 2 * (1 + 40 + 1 + 2 + 2)


def test_small_loops_are_plain_and_others_parallel():
    (small, *_) = loops(on_one_thread(elementwise(8)))
    assert small.kind == tir.ForKind.SERIAL
    turns = MAX_SERIAL_OPERATIONS // int(work(loops(elementwise(1))[1]))
    assert loops(on_one_thread(elementwise(turns)))[0].kind == tir.ForKind.SERIAL
    large = elementwise(turns + 1)
    assert on_one_thread(large) is large


def test_what_is_not_known_stays_parallel():
    @T.prim_func(s_tir=True)
    def called(a: T.handle):
        A = T.match_buffer(a, (4,))
        for i in T.parallel(4):
            T.evaluate(T.call_extern("int32", "usleep", i))
            A[i] = T.float32(1)

    @T.prim_func(s_tir=True)
    def endless(a: T.handle):
        A = T.match_buffer(a, (4,))
        for i in T.parallel(4):
            while A[i] < T.float32(1):
                A[i] = A[i] + T.float32(0.25)

    @T.prim_func(s_tir=True)
    def extern(a: T.handle):
        A = T.match_buffer(a, (4,))
        for i in T.parallel(4):
            A[i] = T.call_extern("float32", "sinf", A[i])

    @T.prim_func(s_tir=True)
    def open_length(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,))
        for i in T.parallel(n):
            A[i] = T.float32(1)

    for function in (called, endless, extern, open_length):
        assert work(function.body) == math.inf
        assert on_one_thread(function) is function


@pytest.mark.parametrize(("turns", "launched"), [(8, False), (4096, True)])
def test_what_is_built(turns, launched):
    module = tvm.IRModule({"main": elementwise(turns)})
    with tvm.transform.PassContext(config=CONFIG):
        built = tvm.compile(module, target=TARGET)
    assert ("ParallelLaunch" in built.mod.inspect_source("ll")) == launched
    data = np.arange(turns * 16, dtype=np.float32)
    found = tvm.runtime.tensor(np.zeros_like(data))
    built["main"](tvm.runtime.tensor(data), found)
    np.testing.assert_array_equal(found.numpy(), data + 1)
    plain = tvm.compile(module, target=TARGET)  # as TVM builds it
    assert "ParallelLaunch" in plain.mod.inspect_source("ll")
