"""Sums of half precision that are too long for it, from PyTorch and from ONNX, are those of float32."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from built import Of, built
from torch import nn
from tvm.relax.frontend.torch import from_exported_program

from wmsched.relax.importers.load import load
from wmsched.relax.passes.accumulate_fp32 import wide_sums
from wmsched.tune.latency import difference

STEPS = {torch.float16: 1e-3, torch.bfloat16: 8e-3}  # one rounding, of the largest
IMAGE = torch.tensor([0.0, 2.0]).repeat(1, 4, 64, 32)  # 4096 in a channel: sums of twos stay at 512 or 4096

CASES = {
    "sum": Of(lambda x: x.sum((2, 3))),
    "mean": Of(lambda x: x.mean()),
    "variance": Of(lambda x: x.var((2, 3))),
    "deviation": Of(lambda x: x.std((1, 2, 3))),
    "norm": Of(lambda x: torch.linalg.vector_norm(32 * x.flatten(1), dim=1)),
    "running sum": Of(lambda x: x.flatten(2).cumsum(-1)),
    "softmax": Of(lambda x: F.softmax(x.flatten(1), -1)),
    "logarithm of softmax": Of(lambda x: F.log_softmax(x.flatten(1), -1)),
    "pooling": nn.AvgPool2d(64),
    "pooling to a size": nn.AdaptiveAvgPool2d(1),
    "layer norm": nn.LayerNorm((4, 64, 64), elementwise_affine=False),
    "group norm": nn.GroupNorm(2, 4),
    "product": Of(lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2)),
}


def outputs(folder, module: nn.Module, data: torch.Tensor):
    """What TVM's build of the exported module computes."""
    torch.export.save(torch.export.export(module.eval(), (data,)), folder / "m.pt2")
    return built(folder, load(str(folder / "m.pt2")), data)


@pytest.mark.parametrize(
    ("name", "dtype"),
    # TVM takes no group norm of bfloat16
    [(name, dtype) for name in CASES for dtype in STEPS if (name, dtype) != ("group norm", torch.bfloat16)],
)
def test_a_long_sum_is_that_of_float32(name, dtype, tmp_path):
    module, data = CASES[name], IMAGE.to(dtype)
    with torch.inference_mode():
        wanted = copy.deepcopy(module).float()(data.float()).to(dtype)
    assert difference(outputs(tmp_path, copy.deepcopy(module).to(dtype), data), wanted) <= STEPS[dtype]


def imported(module: nn.Module, data: torch.Tensor):
    return from_exported_program(torch.export.export(module.eval(), (data,)))


def test_a_module_that_sums_in_float32_is_the_same():
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.LayerNorm(1800))
    module = imported(net, IMAGE)
    assert wide_sums(module) is module


def test_results_keep_their_types_and_what_does_not_sum_is_left():
    module = imported(Of(lambda x: torch.softmax(x, -1) + x.sigmoid()), IMAGE.half())
    wide = wide_sums(module)
    assert wide_sums(wide) is wide
    assert str(wide["main"].ret_ty) == str(module["main"].ret_ty)
    assert wide.script().count("R.astype(") == 2 and "R.astype(" not in module.script()


ONES = np.ones((1, 2, 64, 64), np.float16)
ROWS = ONES.reshape(1, 2, 4096)
GRAPHS = {  # inputs, attributes, constants, what x is, what ONNX says of it
    "MatMul": ("x w", {}, {"w": np.ones((4096, 3), np.float16)}, ROWS, np.full((1, 2, 3), 4096)),
    "Conv": ("x w", {}, {"w": ONES / 2}, ONES, np.full((1, 1, 1, 1), 4096)),
    "ReduceMean": ("x", {"axes": [1, 2, 3]}, {}, ONES, np.ones((1, 1, 1, 1))),
    "ReduceSum": ("x a", {"keepdims": 0}, {"a": np.array([2, 3])}, ONES, np.full((1, 2), 4096)),
    "GlobalAveragePool": ("x", {}, {}, ONES, np.ones((1, 2, 1, 1))),
    "AveragePool": ("x", {"kernel_shape": [64, 64]}, {}, ONES, np.ones((1, 2, 1, 1))),
    "Softmax": ("x", {"axis": 2}, {}, ROWS, np.full((1, 2, 4096), 1 / 4096)),
    "CumSum": ("x a", {}, {"a": np.array(2)}, ROWS, ROWS.cumsum(2, np.float64)),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_onnx_models_sum_so_too(kind, tmp_path):
    onnx = pytest.importorskip("onnx")
    inputs, attributes, constants, data, wanted = GRAPHS[kind]
    make, half = onnx.helper, onnx.TensorProto.FLOAT16
    graph = make.make_graph(
        [make.make_node(kind, inputs.split(), ["y"], **attributes)],
        "g",
        [make.make_tensor_value_info("x", half, data.shape)],
        [make.make_tensor_value_info("y", half, wanted.shape)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    found = built(tmp_path, load(str(tmp_path / "m.onnx")), torch.from_numpy(data).clone())
    assert difference(found, torch.from_numpy(wanted.astype(np.float16))) <= STEPS[torch.float16]
