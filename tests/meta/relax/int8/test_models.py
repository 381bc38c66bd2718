"""Networks that onnxruntime quantized are computed in eight bits, and as onnxruntime computes them."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from built import TARGET, written
from torch import nn
from torch.nn import functional

onnx = pytest.importorskip("onnx")
quantization = pytest.importorskip("onnxruntime.quantization")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from wmsched.base.errors import WmschedError  # noqa: E402
from wmsched.relax.importers.load import load  # noqa: E402
from wmsched.relax.importers.model import tensors  # noqa: E402
from wmsched.relax.int8.dots import dot_of  # noqa: E402
from wmsched.relax.int8.rewrite import eight_bits  # noqa: E402
from wmsched.relax.passes import pipeline  # noqa: E402
from wmsched.tune.latency import library_call  # noqa: E402

pytestmark = pytest.mark.skipif(dot_of(TARGET) is None, reason="this processor has no small dot products")
SIGNED, UNSIGNED = quantization.QuantType.QInt8, quantization.QuantType.QUInt8
QDQ, OPERATORS = quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator
WAYS = {
    "unsigned, by channel": (QDQ, UNSIGNED, SIGNED, True),
    "signed, by tensor": (QDQ, SIGNED, SIGNED, False),
    "unsigned weights": (QDQ, UNSIGNED, UNSIGNED, False),
    "quantized operators, by channel": (OPERATORS, UNSIGNED, SIGNED, True),
}


class Draws(quantization.CalibrationDataReader):
    """Inputs to calibrate with."""

    def __init__(self, data) -> None:
        self.left = [{"x": data.numpy() * scale} for scale in (1, 0.5, 0.9)]

    def get_next(self):
        return self.left.pop() if self.left else None


class Net(nn.Module):
    """Convolutions of all kinds, a residual, a join, poolings and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 5, 2, 2)
        self.depth = nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.point = nn.Conv2d(16, 16, 1)
        self.whole = nn.Conv2d(16, 24, 3, 1, 1)
        self.side = nn.Conv2d(16, 8, 1, 2)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.stem(x)), 3, 2, 1)
        y = functional.relu6(self.depth(x))
        x = functional.relu(x + self.point(y))
        x = torch.cat([functional.max_pool2d(self.whole(x), 2), self.side(x)], 1)
        return self.head(x.mean((2, 3)))


def quantized(folder, module, data, way):
    """The name of a module's quantized file."""
    made, activations, weights, by_channel = way
    source, target = written(folder, module, data), str(folder / "q.onnx")

    quantization.quantize_static(
        source,
        target,
        Draws(data),
        quant_format=made,
        per_channel=by_channel,
        activation_type=activations,
        weight_type=weights,
        extra_options={"WeightSymmetric": True},
    )
    return target


def rewritten(name):
    """The file's model, its module in eight bits, and its kernels."""
    model = load(name)
    module = eight_bits(model.module, TARGET)
    return model, module, re.findall(r"call_tir\(cls\.(int8_[a-z_]+)", module.script())


def outputs(folder, model, module, data):
    prepared = pipeline.prepare(module, TARGET, pack_weights=True)
    executable = pipeline.compile_module(prepared, TARGET, by_rule=lambda function, rule: True)
    pipeline.link(executable, folder / "m.so")
    given = [data] if isinstance(data, torch.Tensor) else data
    found = [np.asarray(one) for one in tensors(library_call(folder / "m.so", TARGET, given)())]
    wanted = runtime(model.name, dict(zip(model.inputs, given)))
    return found, wanted


def runtime(name, given):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(name, options, providers=["CPUExecutionProvider"])
    return session.run(None, {key: value.numpy() for key, value in given.items()})


@pytest.mark.parametrize("way", WAYS)
def test_a_network_is_computed_in_eight_bits(way, tmp_path):
    torch.manual_seed(1)
    data = torch.randn(2, 3, 32, 32)
    name = quantized(tmp_path, Net().eval(), data, WAYS[way])
    model, module, kernels = rewritten(name)
    assert sorted(kernels) == [
        "int8_depthwise", "int8_max_pool", "int8_max_pool", "int8_mean",
        *["int8_product"] * 5, "int8_quantize",
    ]  # fmt: skip
    assert "R.nn.conv2d" not in module.script() and "R.matmul" not in module.script()
    (found,), (wanted,) = outputs(tmp_path, model, module, data)
    step = np.unique(np.abs(np.diff(np.unique(wanted)))).min()  # of the last quantization
    assert np.abs(found - wanted).max() <= 2.01 * step and wanted.std() > 10 * step


@pytest.mark.parametrize("way", WAYS)
def test_one_convolution_is_off_by_a_rounding_step_at_most(way, tmp_path):
    torch.manual_seed(2)
    data = torch.randn(1, 20, 13, 11)
    net = nn.Sequential(nn.Conv2d(20, 40, 3, 2, 1), nn.ReLU(), nn.Conv2d(40, 12, 1)).eval()
    model, module, kernels = rewritten(quantized(tmp_path, net, data, WAYS[way]))
    assert kernels.count("int8_product") == 2
    (found,), (wanted,) = outputs(tmp_path, model, module, data)
    step = np.abs(np.diff(np.unique(wanted))).min()
    off = np.abs(found - wanted) / step
    assert off.max() < 1.01 and (off < 0.01).mean() > 0.97


def test_sums_that_are_not_quantized_stay_real(tmp_path):
    torch.manual_seed(3)

    class Branches(nn.Module):
        """A convolution that an operator of float32 reads."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(8, 16, 3, padding=1)

        def forward(self, x):
            return torch.tanh(self.conv(x)) * 0.5

    data = torch.randn(1, 8, 9, 9)
    source = written(tmp_path, Branches().eval(), data)
    name = str(tmp_path / "q.onnx")

    quantization.quantize_static(source, name, Draws(data), op_types_to_quantize=["Conv"], per_channel=True)
    graph = onnx.load(name)
    model, module, kernels = rewritten(name)
    assert "int8_product" in kernels
    (found,), (wanted,) = outputs(tmp_path, model, module, data)
    assert found.shape == wanted.shape and np.abs(found - wanted).max() < 0.01 * np.abs(wanted).max()
    assert any(node.op_type == "Tanh" for node in graph.graph.node)


def pairs(constants, nodes, shape):
    """A file's model of one float32 input x and output y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_weights_with_zero_points_stay_as_they_are_and_right(tmp_path):
    draws = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.02), "z": np.uint8(120), "ws": np.float32(0.01), "wz": np.int8(3),
        "w": draws.integers(-128, 128, (8, 6, 3, 3)).astype(np.int8), "t": np.float32(0.4), "u": np.int8(-7),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["e"]),
        helper.make_node("Conv", ["d", "e"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "t", "u"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "t", "u"], ["y"]),
    ]
    onnx.save(pairs(constants, nodes, (1, 6, 7, 7)), tmp_path / "m.onnx")
    model, module, kernels = rewritten(str(tmp_path / "m.onnx"))
    assert "int8_product" not in kernels and "R.nn.conv2d" in module.script()
    (found,), (wanted,) = outputs(tmp_path, model, module, torch.randn(1, 6, 7, 7))
    assert np.abs(found - wanted).max() <= 0.401 and wanted.std() > 1


def test_a_product_of_several_axes_and_elementwise_operators(tmp_path):
    torch.manual_seed(4)

    class Gate(nn.Module):
        """A gate on channels, and a product of three axes."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.gate = nn.Conv2d(6, 16, 1), nn.Conv2d(16, 16, 1)
            self.head = nn.Linear(16, 20)

        def forward(self, x):
            x = self.conv(x)
            x = x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))
            return self.head(x.flatten(2).transpose(1, 2))

    data = torch.randn(2, 6, 5, 7)
    name = quantized(tmp_path, Gate().eval(), data, WAYS["unsigned, by channel"])
    model, module, kernels = rewritten(name)
    assert kernels.count("int8_product") == 3
    (found,), (wanted,) = outputs(tmp_path, model, module, data)
    step = np.abs(np.diff(np.unique(wanted))).min()
    assert found.shape == wanted.shape and np.abs(found - wanted).max() <= 3.01 * step


def test_an_attention_s_heads_are_no_channels_of_images(tmp_path):
    torch.manual_seed(6)

    class Attention(nn.Module):
        """Two products with weights, and two of each head."""

        def __init__(self) -> None:
            super().__init__()
            self.head, self.last = nn.Linear(16, 32), nn.Linear(32, 10)

        def forward(self, x):
            x = self.head(x).view(2, 6, 4, 8).transpose(1, 2)
            x = torch.softmax(x @ x.transpose(2, 3), -1) @ x
            return self.last(x.transpose(1, 2).reshape(2, 6, 32))

    data = torch.randn(2, 6, 16)
    name = quantized(tmp_path, Attention().eval(), data, WAYS["unsigned, by channel"])
    model, module, kernels = rewritten(name)
    assert set(kernels) == {"int8_product"} and kernels.count("int8_product") == 2
    (found,), (wanted,) = outputs(tmp_path, model, module, data)
    step = np.abs(np.diff(np.unique(wanted))).min()
    assert found.shape == wanted.shape and np.abs(found - wanted).max() <= 3.01 * step


@pytest.mark.parametrize("way", ["unsigned, by channel", "signed, by tensor"])
def test_activations_are_tables_and_gates_scale(way, tmp_path):
    """SiLU, tanh and a gate on channels leave no operator between kernels; GELU is the float32 result."""
    torch.manual_seed(5)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.down, self.up = (
                nn.Conv2d(6, 40, 3, 1, 1),
                nn.Conv2d(40, 8, 1),
                nn.Conv2d(8, 40, 1),
            )
            self.last, self.head = nn.Conv2d(40, 12, 1), nn.Linear(12, 20)

        def forward(self, x):
            x = functional.silu(self.conv(x))
            gate = self.up(functional.silu(self.down(x.mean((2, 3), keepdim=True))))
            x = torch.tanh(self.last(x * torch.sigmoid(gate)))
            return functional.gelu(self.head(x.flatten(2).transpose(1, 2)))

    data = torch.randn(2, 6, 9, 7)
    name = quantized(tmp_path, Block().eval(), data, WAYS[way])
    model, module, kernels = rewritten(name)
    assert kernels.count("int8_table") == 4 and kernels.count("int8_gate") == 1
    assert kernels.count("int8_product") == 5
    assert "R.sigmoid" not in module.script() and "R.multiply" not in module.script()
    (found,), (wanted,) = outputs(tmp_path, model, module, data)
    assert np.abs(found - wanted).max() <= 0.02 and wanted.std() > 0.08


def test_a_model_without_quantization_is_the_same():
    class Plain(nn.Module):
        def forward(self, x):
            return x + 1

    from wmsched.relax.importers.torch_export import of_program

    module = of_program("plain", torch.export.export(Plain(), (torch.randn(3),)), {}).module
    assert eight_bits(module, TARGET) is module


def test_what_cannot_be_rewritten_stays_with_a_warning(tmp_path, monkeypatch, caplog):
    from wmsched.relax.int8 import rewrite

    def broken(*arguments):
        raise ValueError("no such binding")

    torch.manual_seed(2)
    data = torch.randn(1, 4, 6, 6)
    net = nn.Sequential(nn.Conv2d(4, 8, 1)).eval()
    model = load(quantized(tmp_path, net, data, WAYS["unsigned, by channel"]))
    monkeypatch.setattr(rewrite, "rewritten", broken)
    assert rewrite.eight_bits(model.module, TARGET) is model.module
    assert "stay in float32: no such binding" in caplog.text


def test_a_folder_says_which_instructions_it_needs(tmp_path, monkeypatch):
    import wmsched
    from wmsched.toolchain import loading
    from wmsched.tune.construct_model import construct_model
    from wmsched.tune.options import ModelOptions

    torch.manual_seed(2)
    data = torch.randn(1, 4, 6, 6)
    name = quantized(tmp_path, nn.Sequential(nn.Conv2d(4, 8, 1)).eval(), data, WAYS["signed, by tensor"])
    found = construct_model(ModelOptions(name=name, out=tmp_path / "out", finalists=1))
    assert not found.why
    model = wmsched.load(tmp_path / "out")
    wanted = runtime(name, {"x": data})[0]
    step = np.abs(np.diff(np.unique(wanted))).min()
    assert np.abs(model(data.numpy()) - wanted).max() < 1.01 * step
    monkeypatch.setattr(loading, "absent", list)
    with pytest.raises(WmschedError, match=r"computes in eight bits by .*, which this processor has not"):
        wmsched.load(tmp_path / "out")
