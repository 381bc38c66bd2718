"""Channels last and batch normalisation in weights: networks compute the same, TVM's crashes harm nobody."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import Model
from wmsched.relax.passes import channels_last as relax_layouts
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import CRASHED, HUNG, channels_last, fails
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune import prepare
from wmsched.tune.latency import difference, library_call

TARGET = tvm.target.Target(meta_host_target())
IMAGE = (1, 4, 10, 10)


def norm(channels: int, kind=nn.BatchNorm2d, **options) -> nn.Module:
    """Batch normalisation that does something."""
    made = kind(channels, **options)
    made.running_mean.normal_()
    made.running_var.uniform_(0.5, 2)
    if made.affine:
        nn.init.normal_(made.weight)
        nn.init.normal_(made.bias)
    return made


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.Conv2d(4, 8, 1, bias=False)
        self.a, self.b = norm(8), norm(8)

    def forward(self, x):
        return torch.relu(self.a(self.one(x)) + self.b(self.two(x)))


class Inverted(nn.Module):
    """MobileNet's block, squeeze and excitation in it."""

    def __init__(self):
        super().__init__()
        self.wide, self.deep = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.a, self.b = norm(8), norm(8, affine=False)
        self.less, self.more = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)

    def forward(self, x):
        x = F.relu6(self.b(self.deep(F.hardswish(self.a(self.wide(x))))))
        return x * torch.sigmoid(self.more(F.silu(self.less(F.adaptive_avg_pool2d(x, 1)))))


class Dense(nn.Module):
    """DenseNet's: normalisation before the convolution, and concatenation."""

    def __init__(self):
        super().__init__()
        self.norm, self.conv = norm(4), nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.cat([x, self.conv(torch.relu(self.norm(x)))], 1)
        x = F.avg_pool2d(F.max_pool2d(x, 2), 5)
        return F.softmax(self.last(x.flatten(1)), -1)


class Shuffle(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, stride=2, groups=2)

    def forward(self, x):
        n, c, h, w = (y := self.conv(x)).shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        left, right = y.chunk(2, 1)
        return F.interpolate(left * right, scale_factor=2.0)


class Next(nn.Module):
    """ConvNeXt's: channels last in the model itself."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(4, 8, 7, padding=3), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        x = F.gelu(self.linear(self.norm(self.conv(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)
        return F.pad(x, (1, 1, 1, 1)).mean((2, 3))


class Volume(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv3d(4, 8, 3, padding=1, bias=False), norm(8, nn.BatchNorm3d)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))).mean((2, 3, 4))


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up, self.norm = nn.Conv2d(4, 8, 3), nn.ConvTranspose2d(8, 4, 3), norm(4)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.up(F.relu(self.down(x)))) + x)


class Rows(nn.Module):
    """An axis squeezed out, counted from the end."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)

    def forward(self, x):
        return torch.relu(self.conv(x).mean(-1, keepdim=True)).squeeze(-1)


class Counted(nn.Module):
    """A whole number with one limit: the other is infinite, which is none."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)

    def forward(self, x):
        count = (x > 0).sum((1, 2, 3)).clamp(min=1).float()
        return torch.relu(self.conv(x)).mean((2, 3)) * count.unsqueeze(1)


class Lines(nn.Module):
    """Convolutions along one axis, as of sound: with stride, with dilation, and depthwise."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(5, 12, 3, padding=1), nn.Conv1d(12, 12, 3, stride=2, groups=12)
        self.third = nn.Conv1d(12, 7, 2, dilation=3, bias=False)

    def forward(self, x):
        return self.third(F.gelu(self.second(F.gelu(self.first(x))))).transpose(1, 2)


NETWORKS = {
    "residual": (Residual, IMAGE),
    "inverted": (Inverted, IMAGE),
    "dense": (Dense, IMAGE),
    "shuffle": (Shuffle, IMAGE),
    "next": (Next, IMAGE),
    "rows": (Rows, IMAGE),
    "counted": (Counted, IMAGE),
    "volume": (Volume, (1, 4, 4, 6, 6)),
    "up": (Up, IMAGE),
    "lines": (Lines, (2, 5, 31)),
}


def imported(name: str) -> Model:
    torch.manual_seed(0)
    network, shape = NETWORKS[name]
    with torch.no_grad():
        module, x = network().eval(), torch.randn(shape)
    module.requires_grad_(False)
    program = torch.export.export(module, (x,))
    return Model(name=name, module=from_exported_program(program), inputs={"x": x}, eager=lambda: module(x))


def outputs(model: Model, prepared, folder):
    path = folder / f"model{len(list(folder.iterdir()))}.so"  # a library that is loaded is not written over
    pipeline.compile_module(prepared, TARGET).export_library(str(path))
    return library_call(path, TARGET, list(model.inputs.values()))()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_the_same(name, tmp_path):
    model = imported(name)
    changed = channels_last(model.module)
    text = changed.script()
    assert 'data_layout="NHWC"' in text or 'data_layout="NDHWC"' in text
    assert "nn.batch_norm" not in text and "R.clip" not in text
    prepared = pipeline.prepare(changed, TARGET, pack_weights=True)
    assert difference(outputs(model, prepared, tmp_path), model.eager()) < 1e-5


@pytest.mark.parametrize("name, often", [("residual", 3), ("inverted", 2)])
def test_only_what_comes_in_and_goes_out_is_transposed(name, often):
    """Two convolutions of the first read the input."""
    changed = relax.transform.FoldConstant()(channels_last(imported(name).module))
    assert changed.script().count("permute_dims") == often


def test_where_tvm_s_pass_raises_the_model_is_left_alone(monkeypatch, caplog):
    def raising():
        raise TypeError("float16")

    module = imported("residual").module
    monkeypatch.setattr(relax.transform, "FoldBatchnormToConv2D", raising)
    with caplog.at_level(logging.WARNING, "wmsched"):
        assert channels_last(module) is module
    assert "batch normalisation and channels stay as they are: float16" in caplog.text


@pytest.mark.skipif(
    importlib.util.find_spec("onnx") is None, reason="onnx is not installed: pip install onnx"
)
def test_an_onnx_model_s_clip_is_no_obstacle(tmp_path):
    from onnx import TensorProto, helper, numpy_helper, save

    random = np.random.default_rng(0)
    sizes = {"w": (8, 3, 3, 3), "g": 8, "b": 8, "m": 8, "v": 8}
    weights = {name: np.abs(random.normal(size=size)) for name, size in sizes.items()}
    weights |= {"low": np.zeros(()), "high": np.full((), 6.0)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]),
        helper.make_node("Clip", ["n", "low", "high"], ["k"]),
        helper.make_node("GlobalAveragePool", ["k"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, 3, 8, 8]), ("y", [1, 8, 1, 1]))
    ]
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "net.onnx")
    model = load(str(tmp_path / "net.onnx"))
    changed = channels_last(model.module)
    assert relax.transform.FoldConstant()(changed).script().count("permute_dims") == 2
    last, first = (pipeline.prepare(module, TARGET) for module in (changed, model.module))
    assert difference(outputs(model, last, tmp_path), outputs(model, first, tmp_path)) < 1e-5


def test_a_model_without_convolutions_is_left_alone():
    program = torch.export.export(nn.Linear(4, 4).eval(), (torch.randn(2, 4),))
    module = from_exported_program(program)
    assert channels_last(module) is module


def test_what_fails_in_a_copy_of_the_process_is_told():
    def hang():
        time.sleep(30)

    assert fails(lambda: None) == ""
    assert fails(lambda: 1 / 0) == "failed"
    assert fails(lambda: os.kill(os.getpid(), signal.SIGSEGV)) == CRASHED
    assert fails(hang, patience=0.2) == HUNG


def test_where_tvm_s_conversion_crashes_the_layouts_stay(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(relax_layouts, "fails", lambda work: CRASHED)
    model = imported("residual")
    with caplog.at_level(logging.WARNING, "wmsched"):
        kept = channels_last(model.module)
    assert "channels stay where they are: TVM's conversion of the layouts crashed" in caplog.text
    assert 'data_layout="NCHW"' in kept.script() and "NHWC" not in kept.script()
    assert difference(outputs(model, pipeline.prepare(kept, TARGET), tmp_path), model.eager()) < 1e-5


@pytest.mark.parametrize("eager", [True, False])
def test_a_conversion_that_computes_something_else_is_not_used(monkeypatch, caplog, tmp_path, eager):
    model = imported("residual")
    if not eager:
        model = Model(name=model.name, module=model.module, inputs=model.inputs, why_not_eager="ONNX")
    torch.manual_seed(1)
    other = imported("inverted").module
    monkeypatch.setattr(prepare, "channels_last", lambda module: other)
    wanted = dict.fromkeys(prepare.SETTINGS, True)
    with caplog.at_level(logging.WARNING, "wmsched"):
        prepared, settings = prepare.prepare_model(model, TARGET, wanted, tmp_path)
    assert "stay where they are: with them last the outputs are off by" in caplog.text
    assert settings == wanted | {"channels_last": False}
    assert "NHWC" not in prepared.script()
    assert difference(outputs(model, prepared, tmp_path), imported("residual").eager()) < 1e-5


def test_a_conversion_that_cannot_be_built_is_not_used(monkeypatch, caplog, tmp_path):
    def broken(module, target, *args, **options):
        if "NHWC" in module.script():
            raise RuntimeError("no such operator")
        return right(module, target, *args, **options)

    right, model = pipeline.compile_module, imported("residual")
    monkeypatch.setattr(pipeline, "compile_module", broken)
    monkeypatch.setattr(pipeline, "prepare", lambda module, target, **options: module)
    wanted = dict.fromkeys(prepare.SETTINGS, True) | {"wide_fusion": False}  # it looks at the functions
    with caplog.at_level(logging.WARNING, "wmsched"):
        _, settings = prepare.prepare_model(model, TARGET, wanted, tmp_path)
    assert "with them last the model cannot be built (no such operator)" in caplog.text
    assert settings == wanted | {"channels_last": False}
