"""Configurations of a graph: what can be chosen is found, and whatever is chosen computes the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import tvm
from torch import nn
from tvm.relax.frontend.torch import from_exported_program

from wmsched.base.errors import WmschedError
from wmsched.relax.choices.configuration import Configuration, applied, rules, simplified, sites
from wmsched.relax.choices.regions import regions, variants
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import channels_last
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.latency import difference, library_call

TARGET = tvm.target.Target(meta_host_target())


class Block(nn.Module):
    """Convolutions with a bias, a sum and a ReLU, of one pixel, with a SiLU, and a concatenation."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.wide, self.last = nn.Conv2d(8, 24, 1), nn.Conv2d(32, 12, 3)

    def forward(self, x):
        y = F.relu(self.two(F.relu(self.one(x))) + x)
        return self.last(torch.cat([F.silu(self.wide(y)), y], 1))


@pytest.fixture(scope="module")
def block():
    torch.manual_seed(0)
    module, x = Block().eval().requires_grad_(False), torch.randn(2, 8, 11, 9)
    imported = from_exported_program(torch.export.export(module, (x,)))
    return simplified(channels_last(imported)), x, module(x)


def off(module, x, expected, folder):
    path = folder / f"model{len(list(folder.iterdir()))}.so"
    pipeline.compile_module(pipeline.prepare(module, TARGET), TARGET).export_library(str(path))
    return difference(library_call(path, TARGET, [x])(), expected)


def test_what_can_be_chosen_is_found(block):
    winograd = ("direct", "winograd2", "winograd4", "kernel")
    assert [(site.kind, site.options) for site in sites(block[0])] == [
        ("convolution", winograd),
        ("convolution", winograd),
        ("convolution", ("direct", "product", "kernel")),
        ("chain", ("fused", "apart")),
        ("concat", ("fused", "copied")),
        ("convolution", winograd),
    ]


@pytest.mark.parametrize("choices", [(1, 1, 0, 1, 0, 1), (2, 2, 1, 0, 1, 2), (0, 2, 1, 1, 1, 0)], ids=str)
def test_whatever_is_chosen_computes_the_same(block, choices, tmp_path):
    module, x, expected = block
    changed = applied(module, sites(module), Configuration(choices))
    assert off(changed, x, expected, tmp_path) < 1e-5
    text = changed.script()
    assert text.count("def winograd_data") == len({k for k in choices[:2] if k}) + bool(choices[5])


def test_an_activation_apart_is_a_function_of_its_own(block):
    module, *_ = block
    found = sites(module)
    fused, apart = (
        pipeline.prepare(applied(module, found, rules(found).changed(3, k)), TARGET) for k in (0, 1)
    )
    assert "sigmoid" in _fused_with_convolutions(fused)
    assert "sigmoid" not in _fused_with_convolutions(apart)
    assert "sigmoid" in apart.script() and "barrier" not in apart.script()


def _fused_with_convolutions(prepared):
    return " ".join(name for name in (str(each.name_hint) for each in prepared.functions) if "conv2d" in name)


class Branches(nn.Module):
    """Two convolutions of three by three pixels whose sum is rectified."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)

    def forward(self, x):
        return F.relu(self.one(x) + self.two(x))


def test_two_branches_by_winograd_share_one_sum(tmp_path):
    torch.manual_seed(0)
    module, x = Branches().eval().requires_grad_(False), torch.randn(1, 8, 10, 10)
    graph = simplified(channels_last(from_exported_program(torch.export.export(module, (x,)))))
    changed = applied(graph, sites(graph), Configuration((2, 2)))
    assert off(changed, x, module(x), tmp_path) < 1e-5


def test_without_algorithms_the_rules_leave_the_module_as_it_is(block):
    found = sites(block[0])
    assert applied(block[0], found, rules(found)) is block[0]


@pytest.mark.parametrize("choices", [(1,), (0, 0, 0, 0, 0, 9)], ids=str)
def test_another_graph_s_configuration_is_refused(block, choices):
    with pytest.raises(WmschedError, match="does not fit a graph of 6 places"):
        applied(block[0], sites(block[0]), Configuration(choices))


def test_regions_are_measured_once_for_each_class(block):
    module, *_ = block
    found = sites(module)
    parts = regions(module, found)
    assert [part.sites for part in parts] == [(0,), (1,), (2, 3), (5,)]
    made = variants(parts, found)[1]
    assert sorted(len([one for one in made if one.region == part.key]) for part in parts) == [4, 4, 4, 6]
