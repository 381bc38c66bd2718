"""Transpositions before a concatenation, as a detector's heads have them, are functions of their own."""

from __future__ import annotations

import torch
from built import built, functions, model_of
from torch import nn

from wmsched.tune.latency import difference

IMAGE = torch.linspace(-1, 1, 3 * 16 * 16).view(1, 3, 16, 16)
LARGE, SMALL = (
    torch.linspace(-1, 1, 12 * 12 * 8).view(1, 12, 12, 8),
    torch.linspace(-1, 1, 288).view(1, 6, 6, 8),
)


class Heads(nn.Module):
    """Boxes of two sizes in one tensor, from images whose channels are innermost."""

    def forward(self, large, small):
        return torch.cat([(one * 2).permute(0, 3, 1, 2).flatten(2) for one in (large, small)], dim=2)


def test_they_are_apart_from_what_joins_them(tmp_path):
    model = model_of(Heads(), LARGE, SMALL)
    found = functions(model.module)
    assert not any("transpose" in name and "concatenate" in name for name in found), found
    assert any(name.startswith("transpose") for name in found)
    assert difference(built(tmp_path, model, LARGE, SMALL), Heads()(LARGE, SMALL)) == 0


class Permuted(nn.Module):
    def forward(self, x):
        return torch.relu(x.permute(0, 2, 3, 1) + 1)


def test_one_without_a_concatenation_is_fused_as_before():
    found = functions(model_of(Permuted(), IMAGE).module)
    assert any("transpose" in name and "relu" in name for name in found), found
