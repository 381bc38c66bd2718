"""Gates, as of a squeeze-and-excitation, are computed once, beside what they are for."""

from __future__ import annotations

import pytest
import torch
from built import built, functions, model_of
from torch import nn

from wmsched.tune.latency import difference

IMAGE = torch.linspace(-1, 1, 8 * 12 * 12).view(1, 8, 12, 12)


class Gated(nn.Module):
    """An image times a gate of each of its channels, and more computed of it."""

    def __init__(self, activation: nn.Module, *, dense: bool = False, of: int = 1) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 8) if dense else nn.Conv2d(8, 8, 1)
        self.activation, self.dense, self.of = activation, dense, of

    def forward(self, x):
        pooled = nn.functional.adaptive_avg_pool2d(x, self.of)
        gate = self.gate(pooled.flatten(1))[:, :, None, None] if self.dense else self.gate(pooled)
        return torch.relu(x * self.activation(gate) + x)


@pytest.mark.parametrize(
    "module",
    [Gated(nn.Sigmoid()), Gated(nn.Hardsigmoid()), Gated(nn.Identity()), Gated(nn.Sigmoid(), dense=True)],
    ids=["sigmoid", "hard", "without an activation", "dense"],
)
def test_a_gate_is_apart(module, tmp_path):
    found = functions(model_of(module, IMAGE).module)
    product = "matmul" if module.dense else "conv2d"
    assert not any(product in name and "multiply" in name for name in found)
    assert any(
        "multiply" in name and name.endswith("relu") for name in found
    )  # what follows is fused with it
    assert difference(built(tmp_path, model_of(module, IMAGE), IMAGE), module(IMAGE)) < 1e-6


def test_what_is_as_large_is_fused_as_before():
    module = Gated(nn.Sigmoid(), of=12)
    found = functions(model_of(module, IMAGE).module)
    assert any("conv2d" in name and name.endswith("relu") for name in found)
