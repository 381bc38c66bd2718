"""Every traversal and choice constructs a schedule that builds and computes what the program says."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms

from wmsched.base.errors import UnknownName
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
    (found,) = construct(
        [Task(program, PROGRAMS[program])], target, lambda: WorldModelCostModel(world, round_size=2), **how
    )
    assert found.records and not found.why
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
