"""Models in bfloat16: which products become its kernels, what they compute, and what a user is told."""

from __future__ import annotations

import re

import pytest
import torch
import tvm
from built import TARGET, model_of
from plain_bfloat16 import PLAIN
from torch import nn
from torch.nn import functional
from typer.testing import CliRunner

from wmsched.base.errors import WmschedError
from wmsched.cli.main import app
from wmsched.relax.bf16 import rewrite
from wmsched.relax.bf16.dots import BFLOAT16_DOTS, bfloat16_dot, instructions
from wmsched.relax.bf16.products import Products
from wmsched.relax.bf16.rewrite import bfloat16
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import tensors
from wmsched.relax.int8 import function
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import channels_last
from wmsched.relax.passes.wide_fusion import wide_fusion
from wmsched.tune import latency, prepare
from wmsched.tune.construct_model import construct_model
from wmsched.tune.latency import BFLOAT16, difference, library_call
from wmsched.tune.options import ModelOptions

needs_instructions = pytest.mark.skipif(
    bfloat16_dot(TARGET) is None, reason="this processor has neither AMX-BF16 nor AVX512-BF16"
)
HASWELL = tvm.target.Target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux-gnu"})


class Net(nn.Module):
    """A residual block of convolutions, one of a channel each, and two products, of which one is small."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.narrow = nn.Conv2d(32, 16, 1)
        self.inner = nn.Conv2d(16, 16, 3, 1, 1)
        self.norm = nn.BatchNorm2d(32)
        self.wide = nn.Conv2d(16, 32, 1, bias=False)
        self.depth = nn.Conv2d(32, 32, 3, 1, 1, groups=32)
        self.hidden = nn.Linear(16 * 16, 64)
        self.small = nn.Linear(64, 10)

    def forward(self, x):
        x = functional.relu(self.stem(x))
        y = functional.relu(self.inner(functional.relu6(self.narrow(x))))
        x = functional.relu(x + self.norm(self.wide(y)))
        x = self.depth(x).flatten(2)
        return self.small(functional.gelu(self.hidden(x)) + 1).mean(1)


def rewritten(model):
    module = bfloat16(wide_fusion(channels_last(model.module)), TARGET)
    return module, re.findall(
        r"call_tir\(cls\.(bfloat16_\w+), \((.*)\), out_ty=\w+\.Tensor\((.*)\)", module.script()
    )


def outputs(folder, module, *inputs):
    executable = pipeline.compile_module(pipeline.prepare(module, TARGET), TARGET, by_rule=lambda *_: True)
    pipeline.link(executable, folder / "m.so")
    return list(tensors(library_call(folder / "m.so", TARGET, inputs)()))


@pytest.fixture
def any_dot(monkeypatch):
    """This processor's dot product, or, where it has none, the one that every processor has."""
    if bfloat16_dot(TARGET) is None:
        monkeypatch.setattr(rewrite, "bfloat16_dot", lambda target: PLAIN)


def test_a_network_s_products_are_in_bfloat16(any_dot, tmp_path):
    torch.manual_seed(0)
    data, net = torch.randn(2, 3, 32, 32), Net().eval()
    model = model_of(net, data)
    module, kernels = rewritten(model)
    operators = set(re.findall(r"R\.[a-z0-9_.]*", module.script()))
    # four convolutions and a product; bias, bounds and residual are in them, the small product is not
    assert len(kernels) == 5 and not operators & {"R.nn.relu", "R.clip", "R.nn.batch_norm"}
    assert {"R.matmul", "R.nn.conv2d", "R.nn.gelu"} <= operators
    # what a kernel alone reads is stored in bfloat16: of the narrow and the inner convolution
    assert [result.count("uint16") for _, _, result in kernels].count(1) == 2
    found, expected = outputs(tmp_path, module, data)[0], net(data)
    off = difference(found, expected)
    assert 1e-5 < off < BFLOAT16


def test_a_product_that_others_read_is_not_taken_into_one(any_dot, tmp_path):
    torch.manual_seed(0)

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x):
            y = self.first(x)
            return functional.relu(y) + self.second(y), y

    data, net = torch.randn(64, 64), Shared().eval()
    module, kernels = rewritten(model_of(net, data))
    assert len(kernels) == 2 and "uint16" not in kernels[0][2]
    for found, expected in zip(outputs(tmp_path, module, data), net(data), strict=True):
        assert difference(found, expected) < BFLOAT16


class Attention(nn.Module):
    """Scores of all pairs of rows, and the rows that they weigh."""

    def forward(self, x, y):
        return functional.softmax(x @ y.transpose(-1, -2), -1) @ y


def test_products_of_computed_tensors_are_in_bfloat16(any_dot, tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite, "CORES", "of one thread")
    torch.manual_seed(0)
    data = torch.randn(2, 3, 40, 32), torch.randn(2, 3, 40, 32)
    module, kernels = rewritten(model_of(Attention(), *data))
    assert [name.rstrip("0123456789") for name, _, _ in kernels] == ["bfloat16_batched_product"] * 2
    (found,) = outputs(tmp_path, module, *data)
    assert 1e-5 < difference(found, Attention()(*data)) < BFLOAT16


@pytest.mark.parametrize(
    ("shapes", "threads"),
    [
        ([(6, 40, 32), (6, 40, 32)], 64),  # threads would wait
        ([(6, 8, 32), (6, 400, 32)], 1),  # few rows do not pay for packing
        ([(2, 16, 16), (2, 16, 16)], 1),  # few products
    ],
)
def test_where_that_does_not_pay_they_stay(shapes, threads):
    model = model_of(Attention(), *map(torch.randn, shapes))
    made = function.rewritten(model.module, lambda main, builder: Products(main, builder, PLAIN, threads))
    assert "bfloat16" not in made.script()


@needs_instructions
def test_half_precision_stays_as_it_is():
    model = model_of(nn.Linear(64, 64).half(), torch.randn(64, 64).half())
    assert not rewritten(model)[1]


def test_a_target_without_the_instructions_is_refused():
    model = model_of(nn.Linear(64, 64), torch.randn(64, 64))
    with pytest.raises(WmschedError, match=r"haswell.* has no bfloat16 dot products.*avx512_bf16.*leave"):
        bfloat16(model.module, HASWELL)
    assert instructions(HASWELL) == []


def test_the_command_refuses_it_before_the_model_is_read(tmp_path):
    target = '{"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux-gnu"}'
    found = CliRunner().invoke(
        app, ["compile", "resnet50", "--bf16", "--target", target, "--out", str(tmp_path)]
    )
    assert found.exit_code and "has no bfloat16 dot products" in str(found.exception)


class Cancelled(nn.Module):
    """Differences of numbers that are nearly the same in float32, and the same or far apart in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(64, 64, bias=False)
        with torch.no_grad():
            self.product.weight.copy_(torch.eye(64) - torch.eye(64).roll(1, 1))

    def forward(self, x):
        return self.product(x + 100)


@pytest.fixture
def cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr(latency, "REST", 0.0)
    monkeypatch.setattr(latency, "AT_LEAST", 0.005)
    torch.manual_seed(0)
    name = tmp_path / "cancelled.pt2"
    torch.export.save(torch.export.export(Cancelled(), (torch.rand(64, 64),)), name)
    return str(name)


@needs_instructions
def test_outputs_too_far_off_are_refused_unless_that_is_allowed(cancelled, tmp_path, caplog):
    options = {"name": cancelled, "out": tmp_path / "out", "finalists": 1, "bf16": True}
    with pytest.raises(WmschedError, match=r"off by .*allowed: 0.03\) in bfloat16.*--allow-different"):
        construct_model(ModelOptions(**options))
    assert not (tmp_path / "out" / "model.so").exists()
    found = construct_model(ModelOptions(**options, allow_different=True))
    assert found.library.exists() and found.difference > BFLOAT16
    assert "the bfloat16 build's outputs are off" in caplog.text


@needs_instructions
def test_a_search_does_not_begin_then(cancelled, tmp_path, caplog):
    model, settings = load(cancelled), dict.fromkeys((*prepare.SETTINGS, prepare.BF16), True)
    outputs = prepare.build_untuned(model, TARGET, tmp_path).outputs
    with pytest.raises(WmschedError, match=r"off by .*allowed: 0.03\) in bfloat16.*--allow-different"):
        prepare.prepare_model(model, TARGET, settings, tmp_path, outputs)
    _, taken = prepare.prepare_model(model, TARGET, settings, tmp_path, outputs, allow_different=True)
    assert taken == settings and "in bfloat16" in caplog.text


@needs_instructions
def test_a_folder_says_which_instructions_it_needs(tmp_path, monkeypatch):
    import wmsched
    from wmsched.toolchain import loading

    torch.manual_seed(0)
    monkeypatch.setattr(latency, "REST", 0.0)
    data, net = torch.randn(32, 128), nn.Linear(128, 64)
    torch.export.save(torch.export.export(net.eval(), (data,)), tmp_path / "net.pt2")
    options = ModelOptions(name=str(tmp_path / "net.pt2"), out=tmp_path, finalists=1, bf16=True)
    assert 1e-5 < construct_model(options).difference < BFLOAT16
    assert difference(wmsched.load(tmp_path)(data), net(data)) < BFLOAT16
    monkeypatch.setattr(loading, "absent", lambda names: [n for n in names if n == "avx512_bf16"])
    with pytest.raises(WmschedError, match=r"computes in bfloat16 by avx512_bf16, which"):
        wmsched.load(tmp_path)


def test_amx_is_the_first_choice():
    assert [dot.amx for dot, _ in BFLOAT16_DOTS] == [True, False]
