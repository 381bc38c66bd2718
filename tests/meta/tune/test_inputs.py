"""`wmsched tune MODEL`: models from files and by name, and what is told of those that do not do."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import tvm
from torch import nn
from tuning_models import Net, exported, run

from wmsched.base.cores import unbound
from wmsched.base.errors import EnvironmentProblem, UnknownName, WmschedError
from wmsched.metaschedule import tasks as task_list
from wmsched.relax.importers.load import load
from wmsched.relax.passes import pipeline
from wmsched.schedules.database import RECORDS
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune import tune_model
from wmsched.tune.latency import TOLERANCE, difference, library_call

needs_onnx = pytest.mark.skipif(
    importlib.util.find_spec("onnx") is None, reason="the package onnx is not installed: pip install onnx"
)


def test_a_model_that_tvm_cannot_build_is_refused_before_the_search(files, tmp_path, monkeypatch):
    def broken(*given, **how):
        raise RuntimeError("no rule for such an operation")

    monkeypatch.setattr(pipeline, "compile_module", broken)
    with pytest.raises(WmschedError, match=r"net\.pt2: TVM .* cannot build .*no rule for such an operation"):
        run(files["net"], tmp_path, trials=3)
    assert not (tmp_path / RECORDS).exists()


def test_a_model_that_tvm_takes_for_another_is_told_of_before_the_search(
    files, tmp_path, monkeypatch, caplog
):
    torch.manual_seed(1)
    other, right = exported(tmp_path, "other.pt2", Net(), torch.randn(1, 3, 16, 16)), load(files["net"])
    monkeypatch.setattr(tune_model, "load", lambda *given: replace(right, module=load(other).module))
    with pytest.raises(WmschedError, match=r"something else than PyTorch.*--allow-different"):
        run(files["net"], tmp_path / "refused", trials=3)
    with caplog.at_level(logging.WARNING, "wmsched"):
        _, found = run(files["net"], tmp_path / "out", trials=3, allow_different=True)
    (told,) = [record.message for record in caplog.records if "something else than PyTorch" in record.message]
    assert "model.eval()" in told and found.difference > TOLERANCE


def test_an_example_that_is_a_view_is_copied_to_where_tvm_takes_it(files):
    model = load(files["slice"])
    (data,) = model.inputs.values()
    assert data.data_ptr() % 64 == 0 and data.shape == (1, 10)
    assert tvm.runtime.from_dlpack(data).numpy().tolist() == [list(range(10, 20))]


def test_a_view_as_a_model_is_built_as_it_is(files, tmp_path):
    told, found = run(files["view"], tmp_path / "out", trials=3)
    assert "no tunable task" in told and "built as it is" in told
    assert found.difference == 0 and found.tasks == []


def test_symbolic_shapes_and_files_that_are_no_models(files, tmp_path):
    with pytest.raises(WmschedError, match=r"--shape x=1,4"):
        load(files["open"])
    model = load(files["open"], {"x": (3, 4)})
    assert [tuple(data.shape) for data in model.inputs.values()] == [(3, 4), (3, 4)]
    assert tuple(model.eager()[0].shape if isinstance(model.eager(), tuple) else model.eager().shape) == (
        3,
        4,
    )
    for shapes, kind, reason in (
        ({"z": (3, 4)}, UnknownName, "no such input; its inputs: x, y"),
        ({"x": (3, 5)}, WmschedError, "cannot be changed"),
        ({"x": (3,)}, WmschedError, "has x with shape"),
        ({"x": (3, 4), "y": (2, 4)}, WmschedError, "in another input"),
    ):
        with pytest.raises(kind, match=reason):
            load(files["open"], shapes)
    (tmp_path / "bad.pt2").write_text("no model")
    with pytest.raises(WmschedError, match=r"cannot load it .*torch\.export\.save"):
        load(str(tmp_path / "bad.pt2"))
    for name in ("none.onnx", "resnet51"):
        with pytest.raises(UnknownName, match=r"no such file|did you mean resnet50"):
            load(name)


def test_a_benchmark_model_by_name(monkeypatch):
    from wmsched.zoo import torch_models

    monkeypatch.setitem(
        torch_models.MODELS,
        "small-attention",
        (lambda: torch_models.Attention(32, 2, causal=True), (1, 8, 32)),
    )
    model = load("small-attention")
    target = tvm.target.Target(meta_host_target())
    names = [task.name for task in task_list.tasks(pipeline.prepare(model.module, target), target)]
    assert any("matmul" in name for name in names) and any("softmax" in name for name in names)
    with pytest.raises(WmschedError, match="has the benchmark's shapes"):
        load("small-attention", {"x": (2, 8, 32)})


def onnx_model(path: Path, batch) -> torch.Tensor:
    """A convolution and a relu in a file; its weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = torch.randn(8, 3, 3, 3)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["data.1", "w"], ["y"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "net",
        [helper.make_tensor_value_info("data.1", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [batch, 8, 8, 8])],
        [numpy_helper.from_array(weights.numpy(), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return weights


@needs_onnx
def test_an_onnx_model_becomes_a_library_that_computes_the_same(tmp_path):
    path = tmp_path / "net.onnx"
    weights = onnx_model(path, "batch")
    with pytest.raises(WmschedError, match=r"data\.1 has the shape batch,3,8,8.*--shape data\.1=1,3,8,8"):
        load(str(path))
    with pytest.raises(WmschedError, match="with 4 dimensions"):
        load(str(path), {"data.1": (2, 3, 8)})
    shapes = {"data.1": (2, 3, 8, 8)}
    _, found = run(str(path), tmp_path / "out", trials=3, shapes=shapes)
    assert "eager" not in found.seconds and found.why_not_eager.startswith("not available for ONNX")
    data = load(str(path), shapes).inputs["data.1"]
    call = library_call(found.library, tvm.target.Target(meta_host_target()), [data])
    with unbound():
        assert difference(call(), torch.relu(nn.functional.conv2d(data, weights, padding=1))) < 1e-5
    (tmp_path / "bad.onnx").write_text("no model")
    with pytest.raises(WmschedError, match="cannot be read as an ONNX model"):
        load(str(tmp_path / "bad.onnx"))


def test_without_the_package_onnx_the_remedy_is_named(tmp_path, monkeypatch):
    (tmp_path / "net.onnx").write_bytes(b"")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r"net\.onnx: .*pip install onnx"):
        load(str(tmp_path / "net.onnx"))
