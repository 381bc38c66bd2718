"""ONNX graphs with branches, sequences, outputs that are shapes, and inputs whose shapes they do not say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from built import built

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from wmsched.base.errors import WmschedError  # noqa: E402
from wmsched.relax.importers.load import load  # noqa: E402
from wmsched.relax.importers.model import tensors  # noqa: E402
from wmsched.relax.importers.onnx_fold import folded  # noqa: E402

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def tensor(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def model_of(nodes, outputs, constants=(), *, shape=(2, 3)):
    """A model of one input x."""
    graph = helper.make_graph(nodes, "g", [value("x", shape)], outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def said_by_onnx(model):
    return ReferenceEvaluator(model).run(None, {"x": X})


def computed(folder, model, shapes=None):
    """What TVM computes of it."""
    onnx.save(model, folder / "m.onnx")
    found = built(folder, load(str(folder / "m.onnx"), shapes), torch.from_numpy(X).clone())
    return [np.asarray(each) for each in tensors(found)]


def kinds(model):
    return {each.op_type for each in model.graph.node}


def branch(nodes, output, constants=()):
    return helper.make_graph(nodes, "branch", [], [value(output, None)], list(constants))


def test_what_only_a_branch_reads_is_kept():
    """A bias that is computed of constants: without it TVM would take the layer for one that has none."""
    layers = [branch([node("Gemm", f"x weight {bias}", "t")], "t") for bias in ("bias", "")]
    deeper = branch([node("If", "large", "u", then_branch=layers[0], else_branch=layers[1])], "u")
    nodes = [
        node("Add", "one one", "bias"),
        node("ReduceMax", "x", "most", keepdims=0),
        node("Greater", "most half", "large"),
        node("If", "large", "y", then_branch=deeper, else_branch=layers[1]),
    ]
    weight, one = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    constants = [tensor("weight", weight), tensor("one", one), tensor("half", np.float32(0.5))]
    model = model_of(nodes, [value("y", [2, 4])], constants)
    left = folded(model, {})
    assert kinds(left) == kinds(model) - {"Add"}
    onnx.checker.check_model(left)
    assert np.allclose(said_by_onnx(left)[0], X @ weight + 2)


def test_of_a_condition_on_a_shape_the_branch_is_taken(tmp_path):
    """PyTorch's older exporter writes so what hangs on an extent; both branches may have the same names."""

    def choice(extent, output):
        then = branch(
            [node("Mul", "x two", "t"), node("Relu", "t", "u")], "u", [tensor("two", np.float32(2))]
        )
        other = branch([node("Neg", "x", "t")], "t")
        return [
            node("Equal", f"columns {extent}", f"is_{extent}"),
            node("If", f"is_{extent}", output, then_branch=then, else_branch=other),
        ]

    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape at", "columns"),
        *choice("three", "a"),
        *choice("four", "b"),
        node("Add", "a b", "y"),
    ]
    numbers = {"at": 1, "three": 3, "four": 4}
    model = model_of(
        nodes, [value("y", [2, 3])], [tensor(name, np.int64(number)) for name, number in numbers.items()]
    )
    assert "If" not in kinds(folded(model, {}))
    (found,), (wanted,) = computed(tmp_path, model), said_by_onnx(model)
    assert np.allclose(found, wanted) and np.allclose(found, np.maximum(2 * X, 0) - X)


def test_a_shape_may_be_returned(tmp_path):
    outputs = [value("y", [2, 3]), value("shape", [2], INT64)]
    model = model_of([node("Relu", "x", "y"), node("Shape", "x", "shape")], outputs)
    found, shape = computed(tmp_path, model)
    assert np.array_equal(found, np.maximum(X, 0)) and shape.tolist() == [2, 3] and shape.dtype == np.int64


def test_weights_that_are_listed_as_inputs_are_none(tmp_path):
    """As in files of IR version 3; some are folded into others."""
    nodes = [node("Reshape", "w s", "v"), node("MatMul", "x v", "y")]
    constants = [tensor("w", np.arange(6, dtype=np.float32)), tensor("s", np.array([3, 2]))]
    inputs = [value("w", (6,)), value("x", (2, 3)), value("s", (2,), INT64)]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", (2, 2))], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    (found,) = computed(tmp_path, model)
    np.testing.assert_allclose(found, X @ np.arange(6, dtype=np.float32).reshape(3, 2), rtol=1e-6)


def test_a_sequence_is_no_tensor():
    nodes = [
        node("SequenceConstruct", "one two", "both"),
        node("SequenceAt", "both second", "picked"),
        node("Add", "x picked", "y"),
    ]
    constants = [tensor("one", np.float32(1)), tensor("two", np.float32(2)), tensor("second", np.int64(1))]
    model = model_of(nodes, [value("y", [2, 3])], constants)
    assert folded(model, {}) is model


@pytest.mark.parametrize("shape", [None, [0, -1], [None, None]])
def test_the_shape_of_an_input_that_has_none_is_asked_for_and_taken(shape, tmp_path):
    model = model_of([node("Relu", "x", "y")], [value("y", None)], shape=shape)
    onnx.save(model, tmp_path / "open.onnx")
    with pytest.raises(WmschedError, match=r"its input x .*--shape x=1,"):
        load(str(tmp_path / "open.onnx"))
    (found,) = computed(tmp_path, model, {"x": (2, 3)})
    assert np.array_equal(found, np.maximum(X, 0))


def test_what_is_no_tensor_in_an_output_is_left_out_or_an_error():
    one = torch.ones(2)
    assert [each is one for each in tensors((one, None, {"more": [3, 1.5, "text"]}))] == [True]
    with pytest.raises(WmschedError, match=r"returns a shape, \[2, 3\], which is no tensor"):
        list(tensors([one, tvm.runtime.ShapeTuple((2, 3))]))
    with pytest.raises(WmschedError, match="of type object, in which no tensor is found"):
        list(tensors([one, object()]))
