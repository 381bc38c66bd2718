"""How a whole model is built: which weights a schedule may lay out anew, and exp in vectors in a worker."""

from __future__ import annotations

import pytest
import torch
import tvm
from torch import nn
from tvm import te, tirx
from tvm.relax.frontend.torch import from_exported_program

from wmsched.metaschedule.measure import builder
from wmsched.relax.passes import pipeline
from wmsched.toolchain.targets import meta_host_target

TARGET = tvm.target.Target(meta_host_target())


class Products(nn.Module):
    """``x W``, and with a second input their product: one function, of a constant and of none."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x, y=None):
        return x @ self.weight if y is None else (x @ self.weight, x @ y)


class Scaled(nn.Module):
    """A matrix that no reduction reads."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return x * self.scale


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dense = nn.Conv2d(3, 8, 3), nn.Linear(288, 4)

    def forward(self, x):
        return self.dense(torch.relu(self.conv(x)).flatten(1))


def marked(module: nn.Module, *inputs: torch.Tensor) -> dict[str, list[int]]:
    """The places of what may be laid out anew in each function of a model."""
    program = torch.export.export(module.eval(), inputs)
    prepared = pipeline.prepare(from_exported_program(program), TARGET, pack_weights=True)
    return {
        str(name.name_hint): [int(k) for k in function.attrs.get("layout_free_buffers", ())]
        for name, function in prepared.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }


def test_the_weight_of_a_product_is_free_and_its_bias_not():
    found = marked(Layer(), torch.randn(1, 3, 8, 8))
    assert sorted(places for places in found.values() if places) == [[1], [1]]


@pytest.mark.parametrize(
    "module, inputs, expected",
    [(Products(), 1, [[1]]), (Products(), 2, [[]]), (Scaled(), 1, [[]])],
    ids=["a constant", "a constant in one call of two", "of no reduction"],
)
def test_what_is_no_constant_or_no_weight_stays_as_it_is(module, inputs, expected):
    assert list(marked(module, *[torch.randn(8, 8)] * inputs).values()) == expected


def test_a_worker_builds_with_vector_math():
    a = te.placeholder((64,), "float32", name="a")
    module = tvm.IRModule({"main": te.create_prim_func([a, te.compute((64,), lambda i: tirx.exp(a[i]))])})
    assert "expf" in builder.build(module, TARGET).inspect_source("asm")
    assert "expf" not in builder.build_with_vector_math(module, TARGET).inspect_source("asm")
