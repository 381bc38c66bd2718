"""Loops in vectors and prefetches in AutoScheduler's builds: what is computed, where, and what is fetched."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tir

from wmsched.ansor.codegen import LOWER_PASSES_SETTING, PASS_NAME
from wmsched.ansor.task_scheduler import vector_math
from wmsched.codegen import prefetch, vectorize

REDUCERS = {"sum": (te.sum, np.sum), "max": (te.max, np.max), "min": (te.min, np.min)}


def flat(schedule, tensors) -> tir.PrimFunc:
    """The function as the passes get it."""
    seen = []

    def keep(function, module, context):
        seen.append(function)
        return function

    grab = tir.transform.prim_func_pass(keep, opt_level=0, name="keep")
    with tvm.transform.PassContext(opt_level=3, config={LOWER_PASSES_SETTING: [(1, grab)]}):
        tvm.lower(schedule, tensors)
    return seen[0]


def built(schedule, tensors, target):
    with vector_math():
        return tvm.build(schedule, tensors, target)


def run(function, *inputs: np.ndarray, shape) -> np.ndarray:
    out = tvm.nd.array(np.zeros(shape, "float32"))
    function(*map(tvm.nd.array, inputs), out)
    return out.numpy()


def rows(n: int, reduce=te.sum, dtype: str = "float32"):
    a = te.placeholder((5, n), dtype, name="a")
    k = te.reduce_axis((0, n), name="k")
    b = te.compute((5,), lambda i: reduce(a[i, k], axis=k), name="b")
    return te.create_schedule(b.op), [a, b]


@pytest.mark.parametrize("n", [16, 17, 48, 49, 64, 100, 128, 200, 768])
@pytest.mark.parametrize("name", REDUCERS)
def test_rows_are_reduced_in_vectors(name, n, target):
    reduce, exact = REDUCERS[name]
    schedule, tensors = rows(n, reduce)
    x = np.random.default_rng(n).normal(size=(5, n)).astype("float32")
    function = built(schedule, tensors, target)
    np.testing.assert_allclose(run(function, x, shape=(5,)), exact(x, axis=1), rtol=1e-5, atol=1e-5)
    assert "<16 x float>" in function.get_source("ll")


def test_what_is_not_along_contiguous_float32_stays():
    a = te.placeholder((64, 5), name="a")
    k = te.reduce_axis((0, 64), name="k")
    columns = te.compute((5,), lambda j: te.sum(a[k, j], axis=k), name="b")
    for schedule, tensors in (
        rows(12),
        rows(64, dtype="int32"),
        rows(64, dtype="float64"),
        (te.create_schedule(columns.op), [a, columns]),
    ):
        function = flat(schedule, tensors)
        assert vectorize.in_vectors(function).same_as(function)


@pytest.mark.parametrize(("width", "turns"), [(16, 48), (8, 32), (16, 50), (16, 8)])
def test_one_vector_after_the_other_is_added_to_several(width, turns, target):
    """As a sum along a row is after ``rfactor``."""
    a = te.placeholder((5, width * turns), name="a")
    k = te.reduce_axis((0, turns), name="k")
    b = te.compute((5, width), lambda i, lane: te.sum(a[i, k * width + lane], axis=k), name="b")
    schedule = te.create_schedule(b.op)
    i, lane = b.op.axis
    schedule[b].reorder(i, k, lane)
    schedule[b].vectorize(lane)
    function = flat(schedule, [a, b])
    several = not vectorize.in_vectors(function).same_as(function)
    assert several == (turns % 4 == 0 and turns >= 16)
    x = np.random.default_rng(turns).normal(size=(5, width * turns)).astype("float32")
    exact = x.reshape(5, turns, width).sum(1)
    np.testing.assert_allclose(
        run(built(schedule, [a, b], target), x, shape=(5, width)), exact, rtol=1e-5, atol=1e-5
    )


def softmax(n: int):
    a = te.placeholder((6, n), name="a")
    k, r = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="r")
    most = te.compute((6,), lambda i: te.max(a[i, k], axis=k), name="most")
    exp = te.compute((6, n), lambda i, j: te.exp(a[i, j] - most[i]), name="exp")
    total = te.compute((6,), lambda i: te.sum(exp[i, r], axis=r), name="total")
    out = te.compute((6, n), lambda i, j: exp[i, j] / total[i], name="out")
    return te.create_schedule(out.op), [a, out]


@pytest.mark.parametrize("n", [64, 100])
def test_a_softmax_divides_once_a_row(n, target):
    schedule, tensors = softmax(n)
    x = np.random.default_rng(n).normal(size=(6, n)).astype("float32")
    exact = np.exp(x - x.max(1, keepdims=True))
    function = built(schedule, tensors, target)
    out = run(function, x, shape=(6, n))
    np.testing.assert_allclose(out, exact / exact.sum(1, keepdims=True), rtol=2e-6)
    if n % 16 == 0:  # others are LLVM's loops, which has them in vectors of the width that it likes
        code = function.get_source("ll")
        assert "fdiv <16 x float>" not in code and "fdiv float" in code


def test_what_is_the_same_in_each_step_is_computed_once(target):
    """A softmax whose sum is computed anew for each quotient, as schedules have it."""
    schedule, (a, out) = softmax(64)
    total = next(stage for stage in schedule.stages if stage.op.name == "total")
    total.compute_at(schedule[out], out.op.axis[1])
    function = flat(schedule, [a, out])
    loops = str(vectorize.in_vectors(function))
    assert loops.index("total_1[0] = total_1[0]") < loops.index("out_1[")
    assert str(function).count("T.grid(6, 64)") > loops.count("T.grid(6, 64)")
    x = np.random.default_rng(0).normal(size=(6, 64)).astype("float32")
    exact = np.exp(x - x.max(1, keepdims=True))
    made = built(schedule, [a, out], target)
    np.testing.assert_allclose(run(made, x, shape=(6, 64)), exact / exact.sum(1, keepdims=True), rtol=2e-6)
    assert "fdiv <16 x float>" not in made.get_source("ll")


def test_what_depends_on_the_step_stays_in_it():
    """Sums of rows that the inner loop goes through."""
    a = te.placeholder((64, 64), name="a")
    k = te.reduce_axis((0, 64), name="k")
    rows = te.compute((64, 64), lambda i, j: te.sum(a[j, k], axis=k), name="rows")
    out = te.compute((64, 64), lambda i, j: rows[i, j] * 2.0, name="out")
    schedule = te.create_schedule(out.op)
    schedule[rows].compute_at(schedule[out], out.op.axis[1])
    function = flat(schedule, [a, out])
    loops = str(vectorize.in_vectors(function))
    assert "for i, j in T.grid(64, 64)" in loops and "lanes" in loops


def product(split: int = 8):
    """A batched product of tiles of `split` by 32, its second operand laid out for them; bias by row."""
    a = te.placeholder((4, 64, 128), name="a")
    b = te.placeholder((4, 2, 128, 32), name="b")
    k = te.reduce_axis((0, 128), name="k")
    c = te.compute(
        (4, 64, 64), lambda n, i, j: te.sum(a[n, i, k] * b[n, j // 32, k, j % 32], axis=k), name="c"
    )
    schedule = te.create_schedule(c.op)
    n, i, j = c.op.axis
    i, i_in = schedule[c].split(i, split)
    j, j_in = schedule[c].split(j, 32)
    k_out, k_in = schedule[c].split(k, 4)
    schedule[c].reorder(n, i, j, k_out, k_in, i_in, j_in)
    schedule[c].vectorize(j_in)
    return schedule, [a, b, c]


def value(node, given) -> np.ndarray:
    """An index at the loops' steps, which `given` has as pairs of a variable and an array."""
    if isinstance(node, tir.Var):
        return next(steps for variable, steps in given if variable.same_as(node))
    if isinstance(node, tir.IntImm):
        return np.int64(int(node))
    one, other = value(node.a, given), value(node.b, given)
    return {tir.Add: np.add, tir.Mul: np.multiply, tir.Sub: np.subtract}[type(node)](one, other)


def test_the_next_block_is_fetched_whole():
    schedule, tensors = product()
    plans = [(read, prefetch._plan(read)) for read in prefetch._reads(flat(schedule, tensors))]
    assert {read.load.buffer.data.name for read, plan in plans if plan is not None} == {"a", "b"}
    for read, plan in plans:
        loops = [each.loop for each in read.steps]
        steps = np.meshgrid(*(np.arange(int(each.extent)) for each in loops), indexing="ij", sparse=True)
        given = [(each.loop_var, step) for each, step in zip(loops, steps)]
        (used, fetched) = (value(index, given) + 0 * steps[0] for index in (read.load.indices[0], plan.index))
        used = [set((used[batch] // 16).ravel().tolist()) for batch in range(4)]
        first = [np.unique(fetched[batch]) for batch in range(4)]
        fetched = [{int(at + 16 * line) // 16 for at in each for line in range(plan.lines)} for each in first]
        for batch in range(3):
            assert used[batch + 1] <= fetched[batch]
            assert len(fetched[batch] - used[batch + 1]) <= len(used[batch + 1])  # not much in vain


def test_a_product_with_prefetches_is_the_same_product(target):
    random = np.random.default_rng(0)
    a, b = (random.normal(size=shape).astype("float32") for shape in ((4, 64, 128), (4, 2, 128, 32)))
    schedule, tensors = product()
    plain = tvm.build(schedule, tensors, target)
    function = built(schedule, tensors, target)
    assert "@llvm.prefetch" in function.get_source("ll") and "@llvm.prefetch" not in plain.get_source("ll")
    assert prefetch.FUNCTION not in function.get_source("asm")  # it is inlined, and its own copy dropped
    outs = [run(each, a, b, shape=(4, 64, 64)) for each in (plain, function)]
    np.testing.assert_array_equal(*outs)
    np.testing.assert_allclose(
        outs[0], a @ b.transpose(0, 1, 3, 2).reshape(4, 64, 128).swapaxes(1, 2), atol=1e-4
    )


def test_several_functions_of_one_module_have_prefetches(target):
    with vector_math():
        modules = [tvm.lower(*product(split), name=name) for split, name in ((8, "one"), (4, "two"))]
        library = tvm.build({target: tvm.IRModule({**modules[0].functions, **modules[1].functions})})
    assert library.get_source("ll").count("@llvm.prefetch") >= 4
    random = np.random.default_rng(1)
    a, b = (random.normal(size=shape).astype("float32") for shape in ((4, 64, 128), (4, 2, 128, 32)))
    np.testing.assert_array_equal(*(run(library[name], a, b, shape=(4, 64, 64)) for name in ("one", "two")))


def test_nothing_is_fetched_of_what_is_read_once():
    for schedule, tensors in (rows(768), softmax(768)):
        function = flat(schedule, tensors)
        assert prefetch.prefetched(function).same_as(function)


def test_threads_of_a_gpu_are_left_alone():
    schedule, tensors = rows(768)
    b = tensors[-1]
    schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    function = flat(schedule, tensors)
    assert vectorize.in_vectors(function).same_as(function)
    assert prefetch.prefetched(function).same_as(function)


def test_settings_of_pass_contexts_stay(target):
    """The user's own passes run as well, whichever context is the inner one, and go with it."""
    seen = []

    def count(function, module, context):
        seen.append("count")
        return function

    own = tir.transform.prim_func_pass(count, opt_level=0, name="count")
    schedule, tensors = rows(64)
    settings = {LOWER_PASSES_SETTING: [(1, own)], "tir.disable_vectorize": False}
    wide = []
    with tvm.transform.PassContext(opt_level=3, config=settings), vector_math():
        wide.append(tvm.build(schedule, tensors, target))
        assert "tir.disable_vectorize" in tvm.transform.PassContext.current().config
    with vector_math():
        with tvm.transform.PassContext(3, None, None, None, settings):
            wide.append(tvm.build(schedule, tensors, target))
        with tvm.transform.PassContext(opt_level=2):
            wide.append(tvm.build(schedule, tensors, target))
    assert seen == ["count"] * 2
    assert all("<16 x float>" in each.get_source("ll") for each in wide)
    with tvm.transform.PassContext(opt_level=3) as outside:
        assert LOWER_PASSES_SETTING not in outside.config
    early = tvm.transform.PassContext(opt_level=2, config={"tir.disable_vectorize": False})
    with vector_math(), early, early:
        now = tvm.transform.PassContext.current()
        assert [pair[1].info.name for pair in now.config[LOWER_PASSES_SETTING]] == [
            PASS_NAME
        ] and now.opt_level == 2
        assert "tir.disable_vectorize" in now.config
    with early:
        assert LOWER_PASSES_SETTING not in tvm.transform.PassContext.current().config
    with vector_math(), vector_math():
        names = [
            pair[1].info.name for pair in tvm.transform.PassContext.current().config[LOWER_PASSES_SETTING]
        ]
    assert names == [PASS_NAME]
