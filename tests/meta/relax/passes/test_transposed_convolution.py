"""Transposed convolutions with channels last: as a convolution, or channels first by themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import channels_last
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.latency import difference, library_call

TARGET = tvm.target.Target(meta_host_target())


class UNet(nn.Module):
    """Two scales, a skip connection and normalization on either side of what makes the image larger."""

    def __init__(self):
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.norm = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.BatchNorm2d(8)
        self.join, self.out = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        skip = F.relu(self.down(x))
        y = F.relu(self.deep(F.max_pool2d(skip, 2)))
        y = F.relu(self.norm(self.up(y)))
        return self.out(F.relu(self.join(torch.cat([y, skip], 1))))


class Around(nn.Module):
    """One transposed convolution between two convolutions."""

    def __init__(self, **options):
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 1), nn.Conv2d(6, 3, 1)
        self.up = nn.ConvTranspose2d(4, 6, **options)

    def forward(self, x):
        return self.last(F.relu(self.up(self.first(x))))


def built(module, x, folder):
    module = module.eval().requires_grad_(False)
    program = torch.export.export(module, (x,))
    changed = channels_last(from_exported_program(program))
    made = pipeline.compile_module(pipeline.prepare(changed, TARGET), TARGET)
    made.export_library(str(folder / "model.so"))
    return changed.script(), difference(library_call(folder / "model.so", TARGET, [x])(), module(x))


def test_a_u_net_has_all_its_channels_last(tmp_path):
    torch.manual_seed(0)
    text, off = built(UNet(), torch.randn(1, 3, 16, 16), tmp_path)
    assert "NCHW" not in text and "conv2d_transpose" not in text
    assert off < 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": 4, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
        {"kernel_size": (3, 5), "stride": (1, 3), "padding": (2, 0)},
        {"kernel_size": 2, "stride": 3},
        {"kernel_size": 5, "stride": 2, "padding": 4},
    ],
    ids=str,
)
def test_a_transposed_convolution_is_a_convolution_of_its_phases(options, tmp_path):
    torch.manual_seed(0)
    module = Around(**options)
    text, off = built(module, torch.randn(2, 2, 6, 5), tmp_path)
    assert "conv2d_transpose" not in text
    assert off < 1e-5


@pytest.mark.parametrize("options", [{"dilation": 2}, {"groups": 2}], ids=str)
def test_one_of_another_kind_alone_has_its_channels_first(options, tmp_path):
    torch.manual_seed(0)
    module = Around(kernel_size=3, **options)
    text, off = built(module, torch.randn(1, 2, 5, 5), tmp_path)
    lines = [line for line in text.splitlines() if "R.nn.conv" in line]
    assert [("_transpose" in line, "NCHW" in line) for line in lines] == [
        (False, False), (True, True), (False, False),
    ]  # fmt: skip
    assert off < 1e-5


def test_a_volume_s_has_its_channels_first():
    builder, random = relax.BlockBuilder(), np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((1, 2, 3, 4, 4), "float32"))
    weight, other = (relax.const(random.normal(size=(4, 2, 2, 2, 2)).astype("float32")) for _ in "ab")
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv3d(x, weight))
            y = builder.emit_output(builder.emit(relax.op.nn.conv3d_transpose(y, other)))
        builder.emit_func_output(y)
    text = channels_last(builder.get()).script()
    assert "conv3d_transpose" in text and text.count('data_layout="NCDHW"') == 1
    assert text.count('data_layout="NDHWC"') == 1
