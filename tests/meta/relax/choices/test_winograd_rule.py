"""Winograd by rule: where the operations that it saves pay for the bytes that it moves, and nowhere else."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import tvm
from torch import nn
from tvm.relax.frontend.torch import from_exported_program

from wmsched.relax.choices.configuration import applied, by_rules, rules, simplified, sites
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.winograd_rule import expected_gain, tile_by_rule
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import channels_last
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.latency import difference, library_call

TARGET = tvm.target.Target(meta_host_target())


def taken(size, inputs, outputs, count=1):
    return tile_by_rule((count, size, size, inputs), (count, size, size, outputs))


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "tile"),
    [(56, 64, 64, 4), (28, 128, 128, 4), (14, 256, 256, 4), (7, 512, 512, 0), (160, 16, 16, 0)],
)
def test_it_takes_what_was_much_faster_in_timed_regions(size, inputs, outputs, tile):
    assert taken(size, inputs, outputs) == tile


def test_more_images_share_the_transformed_weights():
    assert not taken(7, 512, 512) and taken(7, 512, 512, count=16)


def test_what_leaves_every_cache_stays_direct():
    shape = (1, 512, 512, 64)
    assert expected_gain(shape, shape, 4) == 0.0 and not tile_by_rule(shape, shape)


class Net(nn.Module):
    """A convolution that the rule takes, with an activation, and one of few channels."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 4, 3)

    def forward(self, x):
        y = self.one(x)
        return self.two(F.silu(y) + x)


def test_a_model_by_rules_computes_the_same(tmp_path):
    torch.manual_seed(0)
    module, x = Net().eval().requires_grad_(False), torch.randn(1, 64, 40, 41)
    graph = channels_last(from_exported_program(torch.export.export(module, (x,))))
    assert by_rules(graph, (), Core()) is graph and by_rules(graph, ["depthwise_kernels"], Core()) is graph
    found = sites(simplified(graph), algorithms=["winograd"])
    assert [site.options[0] for site in found if site.kind == "convolution"] == ["winograd4", "direct"]
    changed = by_rules(graph, ["winograd"], Core())
    assert changed.script() == applied(simplified(graph), found, rules(found), Core()).script()
    prepared = pipeline.prepare(changed, TARGET)
    assert "sigmoid" not in prepared.script().replace("T.sigmoid", "")  # it is in the transform's epilogue
    path = tmp_path / "model.so"
    pipeline.compile_module(prepared, TARGET, vector_math=True).export_library(str(path))
    assert difference(library_call(path, TARGET, [x])(), module(x)) < 1e-5
