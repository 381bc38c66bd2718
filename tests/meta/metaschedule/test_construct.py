"""`construct_tir` and `construct_relax`: schedules for scripts, without a measurement."""

from __future__ import annotations

import functools

import numpy as np
import programs as P
import pytest
import tvm
from tvm import te
from tvm.script import relax as R
from tvm.script.parser import ir as I
from tvm.target import Target

from wmsched.base.errors import UnknownName, WmschedError
from wmsched.construct.traversal import ranked
from wmsched.metaschedule import (
    compile_relax,
    compile_tir,
    construct_relax,
    construct_tir,
    host_target,
)
from wmsched.metaschedule import construct as construction
from wmsched.metaschedule.construct import database_of, is_constructed
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.tasks import Task
from wmsched.metaschedule.workload import kind_of
from wmsched.search.evolution import Evolution
from wmsched.toolchain.targets import target_text
from wmsched.tune.schedules import of_like

QUICK = {"traversal": Evolution(population=32, generations=1)}


@pytest.fixture(scope="module")
def host() -> Target:
    return Target(host_target())


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor((8, 32), "float32"), w: R.Tensor((32, 48), "float32")) -> R.Tensor(
        (8, 48), "float32"
    ):
        with R.dataflow():
            product = R.matmul(x, w)
            out = R.nn.relu(product)
            R.output(out)
        return out


def test_a_function_is_constructed_and_computes_what_it_did(host) -> None:
    func = P.matmul()
    database = construct_tir(func, host, count=2, **QUICK)
    assert len(database.get_all_tuning_records()) == 2
    assert all(is_constructed(record) for record in database.get_all_tuning_records())
    schedule = compile_tir(database, func, host)
    assert len(schedule.trace.insts) > 10  # tiled, not as it was
    a, b = (np.random.default_rng(k).random((64, 64), dtype="float32") for k in (1, 2))
    given = [tvm.runtime.tensor(one) for one in (a, b, np.zeros_like(a))]
    tvm.compile(schedule.mod, host)["main"](*given)
    np.testing.assert_allclose(given[-1].numpy(), a @ b, rtol=1e-4)


def test_a_program_is_constructed_with_its_weights(host) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.random((8, 32), dtype="float32") - 0.5, rng.random((32, 48), dtype="float32") - 0.5
    params = {"w": tvm.runtime.tensor(w)}
    database = construct_relax(Layer, params, host, **QUICK)
    (record,) = database.get_all_tuning_records()
    assert is_constructed(record)
    machine = tvm.relax.VirtualMachine(compile_relax(database, Layer, host, params), tvm.cpu())
    np.testing.assert_allclose(
        machine["main"](tvm.runtime.tensor(x)).numpy(), np.maximum(x @ w, 0), rtol=1e-4
    )


def test_what_cannot_be_constructed_is_named(host) -> None:
    with pytest.raises(UnknownName, match="no-such"):
        construct_tir(P.matmul(), host, cost_model="no-such")
    with pytest.raises(UnknownName, match="walking"):
        construct_tir(P.matmul(), host, traversal="walking")
    with pytest.raises(WmschedError, match="cost_model= names one that can rank"):
        construct_tir(P.matmul(), host, cost_model="xgb")
    with pytest.raises(WmschedError, match=r'add "num-cores"'):
        construct_tir(P.matmul(), {"kind": "llvm", "mcpu": "znver4"})


class Near:
    """An evolution that ranks what it begins with, and keeps it."""

    population = 8

    def __init__(self) -> None:
        self.starts = []

    def __call__(self, start, score, mutate, rng):
        self.starts.append(list(start))
        return ranked(start, score)


def test_a_function_that_differs_in_extents_begins_with_its_neighbour_s_schedules(host, monkeypatch) -> None:
    def model() -> WorldModelCostModel:
        return WorldModelCostModel("x86-meta", round_size=2)

    near = Near()
    monkeypatch.setattr(construction, "NEAR", near)
    tasks = [Task(f"m{n}", P.module(P.matmul(n))) for n in (64, 32, 16)]
    other = Task("softmax", P.module(P.softmax()))
    import_intrinsics(host)
    found = construction.construct([*tasks, other], host, model, count=2, neighbours=True, **QUICK)
    assert [one.task.name for one in found] == ["m64", "m32", "m16", "softmax"]
    assert all(one.records for one in found)
    assert len(near.starts) == 2  # of the second and third product
    for start in near.starts:
        assert 2 <= len(start) <= near.population
    first = [Task("m64", tasks[0].mod)]  # a task draws other schedules the second time
    alone = construction.construct(first, host, model, count=2, **QUICK)
    assert [str(one.trace) for one in alone[0].records] == [str(one.trace) for one in found[0].records]


def rounded(scale: float, zero: int, columns: int = 32, extent: int = 64):
    """Rows quantized as a layer of an eight-bit model does it, with its own scale and zero point."""
    a = te.placeholder((16, extent), "float32", "A")
    product = te.compute(
        (16, columns), lambda i, j: a[i, j] * tvm.tirx.const(scale, "float32"), name="scaled"
    )
    cast = te.compute((16, columns), lambda i, j: product[i, j].astype("int32") + zero, name="rounded")
    return P.module(te.create_prim_func([a, cast]))


def test_programs_that_differ_in_constants_alone_are_of_one_kind(host) -> None:
    text = target_text(host)
    one = kind_of(rounded(0.25, 3), text)
    assert kind_of(rounded(1e-5, 117), text) == one
    others = [rounded(0.25, 3, columns=16), rounded(0.25, 3, extent=48), P.module(P.matmul())]
    assert one not in [kind_of(other, text) for other in others]


def test_a_kind_s_schedules_are_made_for_each_of_its_programs(host) -> None:
    mods = [rounded(0.25, 3), rounded(1e-5, 117)]
    make = functools.partial(WorldModelCostModel, "x86-meta", round_size=2)
    (found,) = construction.construct([Task("one", mods[0])], host, make, count=2, **QUICK)
    other = of_like(found, Task("other", mods[1]))
    assert [str(one.trace) for one in other.records] == [str(one.trace) for one in found.records]
    database = database_of([found, other])
    schedules = [compile_tir(database, mod["main"], host).mod.script() for mod in mods]
    assert "117" in schedules[1] and "117" not in schedules[0] and "T.parallel" in schedules[1]
