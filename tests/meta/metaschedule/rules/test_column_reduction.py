"""Spaces that reduce outer dimensions between tiles of the channels: right, fast, and read in C++."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from wmsched.codegen import register
from wmsched.metaschedule.design_space import DrawnSpaces
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.native.library import library
from wmsched.metaschedule.native.reader import TraceReader
from wmsched.metaschedule.rules import space_generator
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.metaschedule.workload import workload_of
from wmsched.toolchain.targets import meta_host_target, target_text


@pytest.fixture(scope="module")
def target():
    found = tvm.target.Target(meta_host_target())
    import_intrinsics(found)
    return found


def mean(x):
    return topi.sum(x, axis=[1, 2], keepdims=True)


def largest(x):
    return topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", layout="NHWC")


KINDS = {"mean": (mean, (1, 28, 28, 144)), "pooling": (largest, (1, 28, 28, 48))}


def module_of(kind: str) -> tvm.IRModule:
    make, shape = KINDS[kind]
    x = te.placeholder(shape, "float32", name="x")
    return tvm.IRModule({"main": te.create_prim_func([x, make(x)]).with_attr("global_symbol", "main")})


def spaces_of(mod, target, generator):
    context = ms.TuneContext(
        mod=mod, target=target, space_generator=generator, search_strategy="evolutionary", num_threads=1
    )
    return context, context.generate_design_space()


def sampled(context, design, seed: int):
    schedule = Schedule(context.mod, seed=seed)
    Trace(design.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
    drawn = trace_json(schedule.trace)
    schedule.enter_postproc()
    assert all(rule.apply(schedule) for rule in context.space_generator.postprocs)
    return drawn, schedule


def output(mod, target, x: np.ndarray, like: np.ndarray):
    """Output and least seconds of a compiled module."""
    with tvm.transform.PassContext(config=register.CONFIG):
        function = tvm.compile(mod, target=target)["main"]
    given, made = tvm.runtime.tensor(x), tvm.runtime.tensor(np.zeros_like(like))
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        function(given, made)
        seconds.append(time.perf_counter() - began)
    return made.numpy(), min(seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_every_space_computes_the_reduction(kind, target) -> None:
    mod = module_of(kind)
    make, shape = KINDS[kind]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    context, designs = spaces_of(mod, target, space_generator(target))
    assert len(designs) == (1 if kind == "pooling" else 2)  # a pooling has rows for all threads
    plain = tuple(int(extent) for extent in make(te.placeholder(shape, "float32")).shape)
    expected, _ = output(mod, target, x, np.zeros(plain, np.float32))
    for number, design in enumerate(designs):
        _, schedule = sampled(context, design, 3 + number)
        found, _ = output(schedule.mod, target, x, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_their_schedules_are_read_as_tvm_s_postprocessors_leave_them(kind, target) -> None:
    context, designs = spaces_of(module_of(kind), target, space_generator(target))
    spaces, drawn, made = DrawnSpaces(context, designs), [], []
    for number in range(len(designs)):
        for seed in range(1, 6):
            decisions, schedule = sampled(context, designs[number], seed + 10 * number)
            drawn.append([number, spaces.draws[number].row_of(decisions)])
            made.append(ms.MeasureCandidate(schedule, []))
    reader = TraceReader(library(), workload_of(context.mod, target_text(target)))
    theirs, (ours, fits) = reader(made), spaces.read(reader, drawn)
    read = ours.fine  # a padded stage in some of its places is not followed
    assert read.mean() >= (1 if kind == "mean" else 0.7) and fits[read].all()
    assert (ours.stages[read] == theirs.stages[read]).all()
    np.testing.assert_array_equal(ours.columns[read], theirs.columns[read])


def test_an_average_of_an_image_is_twice_as_fast_as_in_metaschedule_s_spaces(target) -> None:
    """Best of six schedules of each."""
    mod, shape = module_of("mean"), KINDS["mean"][1]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    like = np.zeros((1, 1, 1, shape[-1]), np.float32)
    least = {}
    for name, generator in (("ours", space_generator(target)), ("theirs", "post-order-apply")):
        context, designs = spaces_of(mod, target, generator)
        drawn = [sampled(context, design, seed)[1] for seed in (1, 2, 3) for design in designs]
        least[name] = min(output(schedule.mod, target, x, like)[1] for schedule in drawn)
    assert least["ours"] * 2 < least["theirs"], least


def test_sums_along_the_innermost_dimension_keep_metaschedule_s_spaces(target) -> None:
    x = te.placeholder((64, 256), "float32", name="x")
    mod = tvm.IRModule({"main": te.create_prim_func([x, topi.sum(x, axis=1)])})
    ours = [str(design.trace) for design in spaces_of(mod, target, space_generator(target))[1]]
    theirs = [str(design.trace) for design in spaces_of(mod, target, "post-order-apply")[1]]
    assert len(ours) == len(theirs) and not any("SRS" in one for one in ours)
