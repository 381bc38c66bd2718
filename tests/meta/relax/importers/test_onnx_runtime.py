"""onnxruntime beside an ONNX model: what it computes, what is said without it, a mistake that it shows."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from wmsched.base.errors import WmschedError  # noqa: E402
from wmsched.relax.importers import load as importer  # noqa: E402
from wmsched.relax.importers import onnx_runtime  # noqa: E402
from wmsched.relax.importers.load import load  # noqa: E402
from wmsched.tune import latency, schedules  # noqa: E402
from wmsched.tune.construct_model import construct_model  # noqa: E402
from wmsched.tune.options import ModelOptions  # noqa: E402


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A product and a ReLU as an ONNX file."""
    weight = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(weight, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    file = tmp_path_factory.mktemp("onnx") / "small.onnx"
    onnx.save(made, file)
    return str(file)


def test_the_peer_runs_the_file_and_is_the_reference(path):
    model = load(path)
    outputs, whose = model.reference()
    assert whose == "onnxruntime" and model.why_no_peer == ""
    weight = numpy_helper.to_array(onnx.load(path).graph.initializer[0])
    assert torch.allclose(
        outputs[0], torch.relu(model.inputs["x"] @ torch.as_tensor(weight.copy())), atol=1e-5
    )


def test_without_it_the_remedy_is_told(path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        onnx_runtime.importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else real(name)
    )
    model = load(path)
    assert model.peer is None and "pip install" in model.why_no_peer
    assert model.reference() == (None, "")


def test_a_file_that_it_cannot_read_is_no_reference(tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    call, why = onnx_runtime.runtime_call(str(broken), {})
    assert call is not None and why == ""
    with pytest.raises(WmschedError, match="onnxruntime cannot read"):
        call()


def test_a_construction_is_compared_with_it(path, tmp_path, monkeypatch):
    monkeypatch.setattr(latency, "REST", 0.0)
    monkeypatch.setattr(schedules, "usable_cores", lambda: 1)
    found = construct_model(ModelOptions(name=path, out=tmp_path / "out", finalists=1))
    assert found.difference is not None and found.difference < latency.TOLERANCE
    assert found.seconds["onnxruntime"] > 0 and "eager" not in found.seconds


def test_an_importer_s_mistake_is_seen(path, tmp_path, monkeypatch):
    """The model is read as one with other weights: what every build computes is wrong alike."""
    read = importer._read_onnx

    def wrong(name, shapes, *rest):
        other = onnx.load(name)
        weight = other.graph.initializer[0]
        weight.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(weight), "w"))
        onnx.save(other, tmp_path / "other.onnx")
        found = read(str(tmp_path / "other.onnx"), shapes, *rest)
        return type(found)(**{**found.__dict__, "peer": onnx_runtime.runtime_call(name, found.inputs)[0]})

    monkeypatch.setattr(importer, "_read_onnx", wrong)
    monkeypatch.setattr(latency, "REST", 0.0)
    monkeypatch.setattr(schedules, "usable_cores", lambda: 1)
    with pytest.raises(WmschedError, match=r"off by .*compared with onnxruntime"):
        construct_model(ModelOptions(name=path, out=tmp_path / "out", finalists=1))


def test_the_operator_at_which_both_part_is_named(path, monkeypatch):
    from wmsched.relax.importers.operators import table

    assert load(path).parting() == ""
    monkeypatch.setitem(table.STOCK, "Relu", None)
    monkeypatch.setitem(table.OURS, "Relu", lambda node: node.inputs[0])
    assert load(path).parting() == "Relu (output z)"
