"""Functions compiled apart: the library is TVM's, and what is compiled is not compiled again."""

from __future__ import annotations

import pytest
import torch
import tvm
from built import TARGET, Of, model_of
from torch import nn
from tvm import tirx

from wmsched.measure.call_times import by_calls
from wmsched.relax.passes import objects as relax_objects
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.objects import Objects
from wmsched.tune.latency import library_call


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 16), nn.Softmax(dim=-1))
    return model_of(layers, torch.randn(8, 24))


@pytest.fixture(scope="module")
def prepared(model):
    return pipeline.prepare(model.module, TARGET)


def outputs(executable, path, model):
    executable.export_library(str(path))
    (found,) = library_call(path, TARGET, list(model.inputs.values()))()
    return found.numpy()


def test_the_library_computes_the_same_to_the_last_bit(model, prepared, tmp_path):
    objects = Objects(tmp_path, threads=2)
    theirs = outputs(pipeline.compile_module(prepared, TARGET), tmp_path / "theirs.so", model)
    made = pipeline.compile_module(prepared, TARGET, objects=objects)
    assert objects.compiled > 1
    assert (outputs(made, tmp_path / "ours.so", model) == theirs).all()


def test_a_second_build_compiles_what_is_new(model, prepared, tmp_path):
    objects = Objects(tmp_path)
    first = outputs(pipeline.compile_module(prepared, TARGET, objects=objects), tmp_path / "first.so", model)
    compiled = objects.compiled
    again = pipeline.compile_module(prepared, TARGET, objects=objects)
    assert objects.compiled == compiled
    assert (outputs(again, tmp_path / "again.so", model) == first).all()
    other = pipeline.compile_module(prepared, TARGET, vector_math=True, objects=objects)
    assert objects.compiled == 2 * compiled  # under other settings all are new
    found = outputs(other, tmp_path / "other.so", model)
    assert abs(found - first).max() < 1e-6
    assert (found != first).any()  # tanh and exp are arithmetic there


def test_an_executable_runs_without_being_exported(model, prepared, tmp_path):
    made = pipeline.compile_module(prepared, TARGET, objects=Objects(tmp_path))
    machine = tvm.relax.VirtualMachine(made, tvm.cpu())
    (data,) = model.inputs.values()
    (found,) = machine["main"](tvm.runtime.tensor(data.numpy(), tvm.cpu()))
    assert abs(found.numpy() - model.eager().numpy()).max() < 1e-5


def test_main_is_machine_code_and_has_a_twin_that_is_told_of_its_calls(model, prepared, tmp_path):
    """Each function has its own object file, which the compiled ``main`` calls several times."""
    (data,) = (tvm.runtime.tensor(value.numpy()) for value in model.inputs.values())
    told, found = {}, {}
    for name, objects in (("ours", Objects(tmp_path)), ("theirs", None)):
        path = tmp_path / f"{name}.so"
        pipeline.compile_module(prepared, TARGET, objects=objects).export_library(str(path))
        machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
        calls = told[name] = []

        def note(_function, what, before, *_, calls=calls) -> int:
            calls.append(str(what)) if before else None
            return 0

        machine.set_instrument(note)
        (found[name],) = machine["main"](data)
        assert bool(calls) == (name == "theirs")  # a library without the twin is told of as before
        calls.clear()
        by_calls(machine)(data)
        machine.set_instrument(lambda *_: 0)
    assert told["ours"] == told["theirs"] and len(set(told["ours"])) > 2
    assert (found["ours"].numpy() == found["theirs"].numpy()).all()


def test_threads_are_as_many_as_this_process_may_run_on(tmp_path, monkeypatch):
    for cores, threads in ((3, 3), (192, relax_objects.MAX_THREADS)):
        monkeypatch.setattr(relax_objects, "usable_cores", lambda cores=cores: cores)
        assert Objects(tmp_path).threads == threads


def test_what_fails_is_said_and_tried_again(model, prepared, tmp_path, monkeypatch):
    objects = Objects(tmp_path, threads=1)
    right, asked = tirx.build, []

    def fails(module, target):
        asked.append(module)
        raise ValueError("no such instruction")

    monkeypatch.setattr(relax_objects.tirx, "build", fails)
    with pytest.raises(relax_objects.FunctionFailed, match="cannot be compiled: no such instruction"):
        pipeline.compile_module(prepared, TARGET, objects=objects)
    monkeypatch.setattr(relax_objects.tirx, "build", right)
    assert asked
    made = pipeline.compile_module(prepared, TARGET, objects=objects)
    assert outputs(made, tmp_path / "m.so", model).shape == (8, 16)


def test_functions_that_call_each_other_are_compiled_together(model, prepared, tmp_path, monkeypatch):
    called = tvm.ir.Call(tvm.ir.GlobalVar("other"), [])
    assert relax_objects._calls(tirx.PrimFunc([], tirx.Evaluate(called)))
    assert not relax_objects._calls(tirx.PrimFunc([], tirx.Evaluate(tirx.const(0, "int32"))))
    objects = Objects(tmp_path)
    monkeypatch.setattr(relax_objects, "_calls", lambda function: True)
    made = pipeline.compile_module(prepared, TARGET, objects=objects)
    assert objects.compiled == 0
    assert outputs(made, tmp_path / "m.so", model).shape == (8, 16)


def test_a_model_without_functions(tmp_path):
    torch.manual_seed(0)
    model = model_of(Of(lambda x: x.reshape(4, 2)), torch.randn(2, 4))
    prepared = pipeline.prepare(model.module, TARGET)
    objects = Objects(tmp_path)
    found = outputs(pipeline.compile_module(prepared, TARGET, objects=objects), tmp_path / "m.so", model)
    assert found.shape == (4, 2)
