"""Products and convolutions by a kernel of their own: every shape and epilogue computes what PyTorch does."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
from torch import nn
from tvm.relax.frontend.torch import from_exported_program

from wmsched.features.vector_width import AVX2, AVX512, NEON
from wmsched.relax.choices import products
from wmsched.relax.choices.blocks import Blocks, blocks_of, kernel_pays
from wmsched.relax.choices.configuration import Configuration, applied, simplified, sites
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.epilogue import Epilogue
from wmsched.relax.choices.products import packed_weights
from wmsched.relax.int8.geometry import Geometry
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import channels_last
from wmsched.relax.passes.describe import describe
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.latency import difference, library_call

TARGET = tvm.target.Target(meta_host_target())


class Net(nn.Module):
    """Convolutions and products one after the other, each with an epilogue of another kind."""

    def __init__(self, channels):
        super().__init__()
        self.point = nn.Conv2d(channels, 29, 1)
        self.strided = nn.Conv2d(29, 58, 1, stride=2, bias=False)
        self.square = nn.Conv2d(58, 58, 3, padding=1)
        self.wide = nn.Conv2d(58, 35, (1, 5), padding=(0, 4), dilation=(1, 2), stride=(1, 2))
        self.line = nn.Linear(35, 70)
        self.heads = nn.Linear(70, 3 * 26)

    def forward(self, x):
        x = F.silu(self.point(x))
        x = F.relu(self.strided(x))
        x = F.relu(self.square(x) + x)
        x = self.wide(x).flatten(2).transpose(1, 2)
        x = F.gelu(torch.tanh(self.line(x)))
        x = F.gelu(x, approximate="tanh")
        q, k, v = self.heads(x).unflatten(-1, (3, 2, 13)).permute(2, 0, 3, 1, 4)
        return (q @ k.transpose(-1, -2) / 4).softmax(-1) @ v


@pytest.mark.parametrize(
    ("channels", "core"),
    [
        (5, Core(AVX512, 2)),
        pytest.param(64, Core(AVX2, 3), marks=pytest.mark.slow),
        pytest.param(3, Core(NEON, 1), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_it_computes_what_pytorch_does(channels, core, tmp_path):
    torch.manual_seed(0)
    module, x = Net(channels).eval().requires_grad_(False), torch.randn(2, channels, 23, 17)
    graph = simplified(channels_last(from_exported_program(torch.export.export(module, (x,)))))
    found = sites(graph, core=core)
    chosen = Configuration(tuple(len(one.options) - 1 if "kernel" in one.options else 0 for one in found))
    taken = [one for one, option in zip(found, chosen.choices) if one.options[option] == "kernel"]
    assert len(taken) == 8
    changed = pipeline.prepare(applied(graph, found, chosen, core), TARGET)
    text = re.sub(r'"wmsched.what": "[^"]*"', "", changed.script(show_meta=False))
    assert "conv2d" not in text and "matmul" not in text
    said = {one.what: one.flops for one in describe(changed).values()}
    assert said[f"1x1 convolution of {channels} channels to 2 x 23 x 17 x 29, add, sigmoid, multiply"] == (
        2 * 2 * 23 * 17 * 29 * channels
    )
    path = tmp_path / "model.so"
    pipeline.compile_module(changed, TARGET, vector_math=True).export_library(str(path))
    assert difference(library_call(path, TARGET, [x])(), module(x)) < 2e-5


@pytest.mark.parametrize(
    ("blocks", "rows"),
    [
        (Blocks(rows=4, vectors=2, lanes=8, held=False, group=3), 39),  # the last task has one block of rows
        (Blocks(rows=4, vectors=1, lanes=8, held=False, group=2), 16),
        (Blocks(rows=5, vectors=3, lanes=8, held=True), 7),
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 1)])
def test_every_division_computes_the_same(blocks, rows, kernel, monkeypatch):
    monkeypatch.setattr(products, "blocks_of", lambda *given: blocks)
    shape = Geometry(batch=2, height=rows, width=1, channels=6, outputs=21, kernel=kernel)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, rows, 1, 6)).astype("float32")
    weights = rng.standard_normal((shape.depth, 21)).astype("float32")
    result = (2, shape.out_height, 1, 21)
    function = products.product_kernel(shape, Epilogue(), Core(AVX2, 2), x.shape, result)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    given = [
        tvm.runtime.tensor(one) for one in (x, packed_weights(weights, blocks), np.zeros(result, "float32"))
    ]
    tvm.tirx.build(module, TARGET)["main"](*given)
    lines = np.concatenate([x[:, k : k + result[1]] for k in range(kernel[0])], -1)
    np.testing.assert_allclose(given[2].numpy(), lines @ weights, atol=1e-5)


def test_sums_that_nothing_reads_have_room():
    """TVM cuts a buffer down to what is read of it, and the code of a block writes whole vectors."""
    shape = Geometry(batch=1, height=28, width=1, channels=64, outputs=29)
    core = Core(AVX512, 1)
    function = products.product_kernel(shape, Epilogue(), core, (1, 28, 1, 64), (1, 28, 1, 29))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    lowered = tvm.s_tir.transform.CompactBufferAllocation()(
        tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation()(module)
    )
    blocks = blocks_of(shape, core)
    sizes = re.findall(r"sums_2 = T.alloc_local\(\((\d+),\)", lowered.script())
    assert sizes == [str(blocks.rows * 2 * 16)]


def test_weights_are_packed_in_whole_vectors():
    weights = np.arange(3 * 21, dtype=np.float32).reshape(3, 21)
    found = packed_weights(weights, Blocks(rows=2, vectors=2, lanes=8, held=False))
    first, last = found[: 3 * 16].reshape(3, 16), found[3 * 16 :].reshape(3, 8)
    assert np.array_equal(first, weights[:, :16])
    assert np.array_equal(last[:, :5], weights[:, 16:]) and not last[:, 5:].any()


@pytest.mark.parametrize("registers", [AVX512, AVX2, NEON], ids=str)
@pytest.mark.parametrize(("rows", "outputs"), [(1, 1), (49, 464), (784, 58), (1500, 1500), (12544, 24)])
def test_a_block_fits_the_registers(registers, rows, outputs):
    shape = Geometry(batch=1, height=rows, width=1, channels=64, outputs=outputs)
    blocks = blocks_of(shape, Core(registers, 2))
    assert blocks.rows * blocks.vectors + blocks.vectors < registers.number
    assert 1 <= blocks.rows <= rows and (blocks.vectors - 1) * blocks.lanes < outputs
    if rows > 1:  # no multiply-add waits for the one before
        assert blocks.rows * blocks.vectors >= min(8, rows)


@pytest.mark.parametrize(
    ("rows", "depth", "outputs", "count", "taken"),
    [
        (784, 58, 58, 0, True),  # no vector of a schedule would be full
        (1500, 64, 1500, 6, True),
        (1500, 1500, 64, 6, False),  # packing would be for nothing
        (784, 64, 64, 0, True),
        (784, 16, 64, 0, False),  # few products for each sum that is stored
        (1, 1280, 1000, 0, False),
        (49, 64, 10, 0, False),
        (65536, 32, 2, 0, True),  # a schedule's vectors would have two lanes
    ],
)
def test_a_product_has_a_kernel_by_rule(rows, depth, outputs, count, taken):
    shape = Geometry(batch=1, height=rows, width=1, channels=depth, outputs=outputs)
    assert kernel_pays(shape, Core(AVX512, 2), packs=count > 0) is taken


def test_an_image_of_few_channels_is_not_gathered_by_rule():
    shape = Geometry(
        batch=1, height=224, width=224, channels=3, outputs=32, kernel=(3, 3), padding=(1, 1, 1, 1)
    )
    assert not kernel_pays(shape, Core(AVX512, 2))
