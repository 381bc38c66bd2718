"""Every traversal and choice constructs a schedule that builds and computes what the program says."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms
from typer.testing import CliRunner

from benchmarks.construct import measure, table
from benchmarks.construct.variants import TODAY
from benchmarks.tune.meta import workloads
from wmsched.base.errors import UnknownName
from wmsched.cli.main import app
from wmsched.construct import CHOICES, TRAVERSALS, Draw, GensorWalk, LearnedWalk
from wmsched.metaschedule.construct import construct
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.tasks import Task
from wmsched.search.evolution import Evolution
from wmsched.search.guarded_scoring import load_world_model
from wmsched.toolchain.targets import meta_target

SMALL = {
    "evolution": Evolution(population=64, generations=2),
    "draw": Draw(64),
    "gensor": GensorWalk(chains=2),
    "gensor-words": GensorWalk(eq1="words", chains=2),
    "learned": LearnedWalk(population=32, chains=2, steps=3),
}


def convolution():
    data, weight = te.placeholder((1, 10, 10, 8), name="data"), te.placeholder((3, 3, 8, 16), name="weight")
    y = topi.nn.relu(topi.nn.conv2d_nhwc(data, weight, 1, 1, 1))
    func = te.create_prim_func([data, weight, y])
    return tvm.IRModule({"main": func.without_attr("layout_free_buffers")})  # its weights are arguments


def softmax():
    data = te.placeholder((12, 40), name="data")
    return tvm.IRModule({"main": te.create_prim_func([data, topi.nn.softmax(data)])})


PROGRAMS = {"convolution": convolution(), "softmax": softmax()}


@pytest.fixture(scope="module")
def world():
    return load_world_model("x86-meta", online=False)


@pytest.fixture(scope="module")
def target():
    found = meta_target(None)
    import_intrinsics(found)
    return found


def constructed(program, target, world, **how):
    with measure.fallbacks() as told:
        (found,) = construct(
            [Task(program, PROGRAMS[program])],
            target,
            lambda: WorldModelCostModel(world, round_size=2),
            **how,
        )
    assert found.records and not found.why and not told
    return found.records[0]


def output(mod, target, arguments, shape):
    call = tvm.compile(mod, target=target)
    result = tvm.runtime.tensor(np.zeros(shape, "float32"))
    call(*(tvm.runtime.tensor(each) for each in arguments), result)
    return result.numpy()


def agrees(program, record, target) -> bool:
    """Whether the scheduled program computes what the plain one does."""
    info = ms.arg_info.ArgInfo.from_entry_func(PROGRAMS[program])
    shapes = [tuple(int(n) for n in one.shape) for one in info]
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    scheduled = record.as_measure_candidate().sch.mod
    plain = output(PROGRAMS[program], target, arguments, shapes[-1])
    return bool(np.abs(output(scheduled, target, arguments, shapes[-1]) - plain).max() < 1e-4)


@pytest.mark.parametrize("name", TRAVERSALS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_traversal_constructs_what_builds_and_is_right(name, program, target, world) -> None:
    record = constructed(program, target, world, traversal=SMALL[name])
    assert agrees(program, record, target)
    if program == "convolution":
        again = constructed(program, target, world, traversal=SMALL[name])
        assert str(again.trace) == str(record.trace)


@pytest.mark.parametrize("name", [name for name in CHOICES if name != "first"])
def test_a_choice_takes_one_that_builds_and_is_right(name, target, world) -> None:
    record = constructed("convolution", target, world, traversal=SMALL["evolution"], choice=name)
    assert agrees("convolution", record, target)


def test_gensor_s_own_order_is_by_its_traffic_and_not_the_score(target, world) -> None:
    by = {
        ranking: str(constructed("convolution", target, world, traversal=GensorWalk(ranking=ranking)).trace)
        for ranking in ("own", "model")
    }
    assert by["own"] != by["model"]


def test_a_wrong_name_is_told_before_anything_is_searched(target) -> None:
    with pytest.raises(UnknownName, match="no traversal is called 'depth-first'"):
        construct([Task("a", PROGRAMS["softmax"])], target, lambda: 1 / 0, traversal="depth-first")


def test_a_gpu_s_schedules_are_constructed_without_one() -> None:
    gpu = tvm.target.Target({
        "kind": "cuda", "arch": "sm_90", "model": "nvidia-h100", "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 48 << 10, "thread_warp_size": 32,
    })  # fmt: skip
    model = load_world_model("cuda-meta", online=False)
    task = Task("convolution", workloads.module("conv2d-pad-relu"))
    with measure.fallbacks() as told:
        (found,) = construct(
            [task],
            gpu,
            lambda: WorldModelCostModel(model, round_size=2),
            traversal=SMALL["gensor"],
        )
    (record,) = found.records
    assert not told
    tags = {str(step.attrs[0]).partition(".")[0] for step in record.trace.insts if step.kind.name == "Bind"}
    assert {"blockIdx", "vthread", "threadIdx"} <= tags


def test_options_of_the_command_line(tmp_path) -> None:
    def wrong(*given: str) -> str:
        done = CliRunner().invoke(app, ["compile", "net.onnx", "--out", str(tmp_path / "out"), *given])
        assert done.exit_code != 0
        return done.output + str(done.exception)

    assert "no traversal is called 'depth-first'" in wrong("--traversal", "depth-first")
    assert "no choice is called 'last'" in wrong("--choice", "last")
    assert "a search has its own" in wrong("--minutes", "1", "--choice", "spread")


@pytest.mark.slow
def test_the_benchmark_s_line_of_a_task(target, world) -> None:
    builder = measure.tools("x86-meta")[2]
    settings = measure.Settings(pool=3, rounds=3)
    line = measure.measure("layernorm-mean", [TODAY, "gensor"], settings, target, world, builder)
    assert json.loads(json.dumps(line)) == line and line["kind"] == table.KIND
    assert set(line["variants"]) == {TODAY, "gensor"} and not line["tvm_searches"]
    assert line["variants"][TODAY]["schedule"] == line["pool"][0] and len(line["pool"]) == 3
    assert all(seconds > 0 for seconds in line["seconds"].values())
    for found in line["variants"].values():
        assert len(line["turns"][str(found["schedule"])]) == 3 and found["core_seconds"] > 0
    assert all(value >= 1 for name in line["variants"] for value in table.over_best([line], name).values())


def test_slow_schedules_of_the_pool_are_timed_no_more() -> None:
    asked: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def call(which: int, seconds: float):
        def of(number: int) -> float:
            asked[which].append(number)
            return seconds

        return of

    calls = {0: call(0, 0.01), 1: call(1, 0.02), 2: call(2, 0.02)}
    times = measure.timed(calls, {2}, 5)
    assert {which: len(found) for which, found in times.items()} == {0: 5, 1: measure.SIFTING, 2: 5}
    assert set(asked[0][2:]) == {2} and set(asked[2][2:]) == {1}
