"""Depthwise convolutions by a kernel of their own: every shape and epilogue computes what PyTorch does."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
import tvm
from torch import nn
from tvm.relax.frontend.torch import from_exported_program

from wmsched.features.vector_width import AVX2, AVX512, NEON
from wmsched.relax.choices.configuration import applied, rules, simplified, sites
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.depthwise import Group, groups_of, parts_of
from wmsched.relax.int8.geometry import Geometry
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import channels_last
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.latency import difference, library_call

TARGET = tvm.target.Target(meta_host_target())


class Net(nn.Module):
    """Depthwise convolutions one after the other, each with an epilogue of another kind."""

    def __init__(self, channels, kernels):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Conv2d(channels, channels, groups=channels, **options) for options in kernels
        )

    def forward(self, x):
        for k, part in enumerate(self.parts):
            y = part(x)
            if k % 4 == 0:
                x = F.silu(y)
            elif k % 4 == 1:
                x = F.hardtanh(y, 0.0, 6.0) + x if y.shape == x.shape else F.hardtanh(y, 0.0, 6.0)
            elif k % 4 == 2:
                x = y * F.hardtanh(y + 3.0, 0.0, 6.0) / 6.0
            else:
                x = y
        return x


KERNELS = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 5, "padding": 2, "stride": 2},
    {"kernel_size": 3, "padding": 2, "dilation": 2, "bias": False},
    {"kernel_size": (1, 7), "padding": (0, 3)},
    {"kernel_size": 3, "padding": (1, 0), "stride": (1, 2)},
    {"kernel_size": (5, 3), "padding": (4, 1)},
]


@pytest.mark.parametrize(
    ("channels", "core"),
    [
        (44, Core(AVX512, 2)),
        pytest.param(96, Core(AVX2, 3), marks=pytest.mark.slow),
        pytest.param(3, Core(NEON, 1), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_it_computes_what_pytorch_does(channels, core, tmp_path):
    torch.manual_seed(0)
    module, x = Net(channels, KERNELS).eval().requires_grad_(False), torch.randn(2, channels, 23, 29)
    graph = simplified(channels_last(from_exported_program(torch.export.export(module, (x,)))))
    found = sites(graph, algorithms=["depthwise_kernels"])
    assert [site.options[0] for site in found if "direct" in site.options] == ["kernel"] * len(KERNELS)
    changed = pipeline.prepare(applied(graph, found, rules(found), core), TARGET)
    text = re.sub(r'"wmsched.what": "[^"]*"', "", changed.script(show_meta=False))
    assert "conv2d" not in text and "sigmoid" not in text.replace("T.sigmoid", "")
    path = tmp_path / "model.so"
    pipeline.compile_module(changed, TARGET, vector_math=True).export_library(str(path))
    assert difference(library_call(path, TARGET, [x])(), module(x)) < 2e-6


def test_pixels_at_the_edges_are_groups_of_their_own():
    shape = Geometry(batch=1, height=9, width=30, channels=8, outputs=8, kernel=(3, 3), padding=(1, 1, 1, 1))
    assert groups_of(shape, 8) == [Group(0, 8), Group(8, 8, 2), Group(24, 6)]
    whole = Geometry(batch=1, height=9, width=18, channels=8, outputs=8, kernel=(3, 3))
    assert groups_of(whole, 8) == [Group(0, 8, 2)]


@pytest.mark.parametrize(("rows", "threads", "parts"), [(7, 2, 2), (56, 2, 1), (7, 16, 2), (1, 1, 1)])
def test_channels_are_divided_where_rows_leave_threads_idle(rows, threads, parts):
    assert parts_of(rows, 60, threads) == parts
