"""ONNX models whose shapes are computed in the graph, as PyTorch's older exporter writes them."""

from __future__ import annotations

import pytest
import torch
from built import Of, built, written
from torch import nn

onnx = pytest.importorskip("onnx")

from wmsched.base.errors import WmschedError  # noqa: E402
from wmsched.relax.importers import onnx_fold  # noqa: E402
from wmsched.relax.importers.load import load  # noqa: E402
from wmsched.relax.importers.onnx_fold import folded  # noqa: E402
from wmsched.tune.latency import difference  # noqa: E402

IMAGE = torch.linspace(-1, 1, 2 * 4 * 6 * 8).view(2, 4, 6, 8)


def halves(x):
    return torch.cat(x.chunk(2, 1)[::-1], 1)


def shuffled(x):
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def padded(x):
    rows, columns = x.shape[-2:]
    return nn.functional.pad(x, (0, -columns % 5, 0, -rows % 5))


def masked(x):
    n = x.shape[-1]
    return x + torch.triu(torch.ones(n, n), 1)[-x.shape[2] :]


CASES = {
    "halves": halves,
    "shuffled": shuffled,
    "padded": padded,
    "reflected": nn.ReflectionPad2d(1),
    "masked": masked,
    "last": lambda x: x[:, -1],
    "flat": lambda x: x.view(x.shape[0], -1),
    "expanded": lambda x: torch.arange(x.shape[3]).expand(x.shape[0], -1) + x[:, 0, 0],
}


def outputs(folder, name: str, data: torch.Tensor, shapes=None):
    return built(folder, load(name, shapes), data)


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_pytorch_does(name, tmp_path):
    module = Of(CASES[name])
    path = written(tmp_path, module, IMAGE)
    assert difference(outputs(tmp_path, path, IMAGE), module(IMAGE)) < 1e-6


def test_shapes_that_are_given_are_used(tmp_path):
    """A model for any size, of a size: its shapes are known then, and what hangs on them is computed."""
    module = Of(shuffled)
    path = written(tmp_path, module, IMAGE, dynamic_axes={"x": {0: "batch", 2: "rows"}})
    other = torch.cat([IMAGE, IMAGE + 1])[:3, :, :5].contiguous()
    found = outputs(tmp_path, path, other, {"x": tuple(other.shape)})
    assert difference(found, module(other)) < 1e-6
    model = onnx.load(path)
    before = model.SerializeToString()
    known = folded(model, {"x": tuple(other.shape)})
    assert {node.op_type for node in model.graph.node} > {node.op_type for node in known.graph.node}
    assert "Shape" not in {node.op_type for node in known.graph.node}
    assert model.SerializeToString() == before
    onnx.checker.check_model(known)


def test_a_model_that_has_nothing_to_fold_or_cannot_be_inferred_stays(tmp_path, monkeypatch):
    model = onnx.load(written(tmp_path, nn.Linear(8, 4), IMAGE[0, 0]))
    assert folded(model, {}) is model
    other = onnx.load(written(tmp_path, Of(shuffled), IMAGE))

    def broken(*given, **how):
        raise ValueError("no inference today")

    monkeypatch.setattr(onnx_fold.onnx.shape_inference, "infer_shapes", broken)
    assert folded(other, {}) is other


def test_what_the_reference_cannot_evaluate_stays_in_the_graph(tmp_path, monkeypatch):
    def broken(*given, **how):
        raise RuntimeError("not implemented")

    monkeypatch.setattr(onnx_fold, "ReferenceEvaluator", broken)
    model = onnx.load(written(tmp_path, Of(halves), IMAGE))
    assert folded(model, {}) is model


def test_random_numbers_and_large_constants_are_not_computed(tmp_path):
    make = onnx.helper
    nodes = [
        make.make_node("ConstantOfShape", ["size"], ["large"]),
        make.make_node("RandomUniformLike", ["large"], ["random"]),
        make.make_node("Add", ["large", "random"], ["sum"]),
        make.make_node("Add", ["sum", "x"], ["y"]),
    ]
    shape = (onnx_fold.MAX_ELEMENTS + 1,)
    tensor = make.make_tensor_value_info
    graph = make.make_graph(
        nodes, "g", [tensor("x", 1, shape)], [tensor("y", 1, shape)],
        [make.make_tensor("size", 7, (1,), shape)],
    )  # fmt: skip
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
    assert folded(model, {}) is model


def test_an_operator_that_tvm_lacks_is_named(tmp_path):
    make = onnx.helper
    tensor = make.make_tensor_value_info
    graph = make.make_graph(
        [make.make_node("Det", ["x"], ["y"])], "g", [tensor("x", 1, (9, 9))], [tensor("y", 1, ())]
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(WmschedError, match="Det: matrices of 9 rows"):
        load(str(tmp_path / "m.onnx"))
