"""Sums in parts: the spaces that MetaSchedule has not say the same, and are read as they are made."""

from __future__ import annotations

import logging
import re

import numpy as np
import programs as P
import pytest
import tvm
from stock_spaces import cuda_source
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from benchmarks.gpu.kinds import Kind
from benchmarks.tune.meta import workloads
from data_builder.metaschedule.programs import Program
from wmsched.features.trace_features import trace_features
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.design_space import DrawnSpaces
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.native.library import library
from wmsched.metaschedule.native.reader import TraceReader
from wmsched.metaschedule.rules.spaces import space_generator
from wmsched.metaschedule.search_strategy import drawn_search
from wmsched.metaschedule.trace_reader import steps_of_schedule
from wmsched.metaschedule.workload import workload_of
from wmsched.search.evolution import Evolution
from wmsched.toolchain.targets import target_text

PARTED = {  # over the threads of a block, over the grid
    "dense_nt_add 1x1024x1000": (1, 1),
    "dense 1x2048x1408": (1, 1),
    "batch_matmul_nt 16x1x320x64": (1, 0),
    "dense_nt_add_gelu 64x512x2048": (0, 3),
    "conv2d_nhwc_add_relu 1x14x14x768x224x1x1x0": (0, 1),
    "conv2d_nhwc_add_relu 1x7x7x384x384x3x1x1": (0, 1),
}


@pytest.fixture(scope="module")
def target():
    found = Target(P.GPUS["H100"])
    import_intrinsics(found)
    return found


def program(text):
    kind, shape = text.split()
    return Program("", text, (kind, tuple(map(int, shape.split("x"))))).module()


def context(mod, target, strategy="evolutionary"):
    quiet = logging.getLogger("tests.gpu_sums")
    quiet.setLevel(logging.CRITICAL)
    return ms.TuneContext(
        mod,
        target=target,
        space_generator=space_generator(target),
        search_strategy=strategy,
        rand_state=5,
        num_threads=1,
        logger=quiet,
        task_name="task",
    )


def parts(designs):
    """The traces of sums over threads, and of those over the grid."""
    found = [design.trace for design in designs if "rfactor" in str(design.trace)]
    grid = [trace for trace in found if "blockIdx.y" in str(trace)]
    return [trace for trace in found if trace not in grid], grid


def made(mod, trace, seed):
    schedule = Schedule(mod, seed=seed)
    Trace(trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
    return schedule


def computed(mod, arguments):
    """The last argument after a run here; threads one after the other."""
    text = re.sub(r'T.thread_binding\((\d+), thread="[^"]*"\)', r"range(\1)", mod.script())
    text = text.replace('scope="local"', 'scope="global"').replace('scope="shared"', 'scope="global"')
    given = [tvm.runtime.tensor(x) for x in arguments]
    tvm.compile(tvm.script.from_source(text), target="llvm")["main"](*given)
    return given[-1].numpy()


@pytest.mark.parametrize("text", PARTED)
def test_the_spaces_are_there_and_compute_the_same(text, target) -> None:
    mod = program(text)
    threads, grid = parts(context(mod, target).generate_design_space())
    assert (len(threads), len(grid)) == PARTED[text]
    rng = np.random.default_rng(0)
    shapes = [[int(n) for n in parameter.ty.shape] for parameter in mod["main"].params]
    arguments = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    expected = computed(mod, arguments)
    for trace in (*threads, *grid):
        found = computed(made(mod, trace, 7).mod, arguments)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("text", PARTED)
def test_they_are_read_as_tvm_makes_them(text, target) -> None:
    """By both readers."""
    mod = program(text)
    ctx = context(mod, target)
    spaces = DrawnSpaces(ctx, ctx.generate_design_space())
    workload = workload_of(ctx.mod, target_text(target))
    reader = TraceReader(library(), workload)
    rng = np.random.default_rng(2)
    spaces.check(reader, rng)
    tried = spaces.random(2, rng)
    candidates = [spaces.candidate(one, checked=False) for one in tried]
    read, fits = spaces.read(reader, tried)
    phi, extra, _ = trace_features([steps_of_schedule(one.sch) for one in candidates], workload)
    ours = read.phi(range(len(tried)))
    np.testing.assert_array_equal(ours[0], phi)
    np.testing.assert_array_equal(ours[1], extra)
    assert all(fine for one, fine in zip(tried, fits) if spaces.candidate(one) is not None)


@pytest.mark.parametrize("text", ["dense_nt_add 1x1024x1000", "dense_nt_add_gelu 64x512x2048"])
def test_they_become_cuda(text, target) -> None:
    mod = program(text)
    ctx = context(mod, target)
    threads, grid = parts(ctx.generate_design_space())
    spaces = DrawnSpaces(ctx, [Schedule(mod)])
    for kernels, traces in ((1, threads), (2, grid)):
        for trace in traces:
            done = 0
            for seed in range(1, 40):
                schedule = made(mod, trace, seed)
                schedule.enter_postproc()
                if all(rule.apply(schedule) for rule in spaces.rules):
                    assert cuda_source(schedule.mod, target).count("__launch_bounds__") == 2 * kernels
                    done += 1
                if done == 2:
                    break
            assert done


def test_nothing_is_parted_where_nothing_is_gained(target) -> None:
    """Sums that read nothing twice, whose rule MetaSchedule has; outputs with enough tiles; short sums."""
    for mod in (workloads.module("layernorm-mean"), workloads.module("softmax"), workloads.module("conv3d")):
        assert parts(context(mod, target).generate_design_space()) == ([], [])


def test_other_targets_have_metaschedule_s_spaces() -> None:
    assert space_generator(Target("opencl")) == "post-order-apply"


def test_all_of_metaschedule_s_spaces_are_there_too(target) -> None:
    mod = program("dense_nt_add 1x1024x1000")
    stock = ms.TuneContext(
        mod,
        target=target,
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        rand_state=5,
        num_threads=1,
    )
    kinds = [
        [[inst.kind.name for inst in design.trace.insts] for design in ctx.generate_design_space()]
        for ctx in (stock, context(mod, target))
    ]
    assert len(kinds[0]) > 0 and all(row in kinds[1] for row in kinds[0])


def test_the_search_proposes_of_all_spaces(target) -> None:
    """And every candidate's trace is made again by its instructions alone, as a database does."""
    model = WorldModelCostModel("cuda-meta", round_size=16)
    mod = program("dense_nt_add 1x1024x1000")
    small = Evolution(population=96, generations=2)
    ctx = context(mod, target, drawn_search(model, evolution=small, stock=lambda designs: 1 / 0))
    ctx.pre_tuning(
        max_trials=64,
        num_trials_per_iter=16,
        design_spaces=ctx.generate_design_space(),
        database=ms.database.MemoryDatabase(),
        cost_model=model,
    )
    candidates = ctx.generate_measure_candidates()
    assert len(candidates) == 16
    for candidate in candidates:
        again = Schedule(mod)
        Trace(candidate.sch.trace.insts, candidate.sch.trace.decisions).apply_to_schedule(
            again, remove_postproc=False
        )
        tvm.ir.assert_structural_equal(again.mod, candidate.sch.mod)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_three_elements_are_fetched_at_once_of_floats_alone(target, dtype) -> None:
    """TVM writes no CUDA for three half floats."""
    kind = Kind(name="dense", shape=(1, 64, 512, 2048), dtype=dtype, out="float32", transposed=True)
    mod = tvm.IRModule({"main": kind.function().with_attr("global_symbol", "main")})
    _, grid = parts(context(mod, target).generate_design_space())
    assert grid
    fetched = [re.findall(r"sample_categorical\(candidates=\[(1, 2[^]]*)\]", str(trace)) for trace in grid]
    wanted = "1, 2, 4" if dtype == "float16" else "1, 2, 3, 4"
    assert all(found.count(wanted) == 2 for found in fetched), fetched
