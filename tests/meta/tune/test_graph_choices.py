"""A model's graph chosen by timing: regions are measured, graphs built, and the fastest right one is kept."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from wmsched.tune import folder as tuned_folder
from wmsched.tune.construct_model import construct_model
from wmsched.tune.graph import choose
from wmsched.tune.options import ModelOptions


class Net(nn.Module):
    """One convolution that Winograd may compute, and one that may be a product."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 8, 1)

    def forward(self, x):
        return self.two(F.relu(self.one(x)))


@pytest.mark.slow
@pytest.mark.parametrize("fastest", ["graph0", choose.RULES])
def test_the_graph_that_is_fastest_in_the_model_is_built(monkeypatch, tmp_path, fastest):
    torch.manual_seed(0)
    program = torch.export.export(Net().eval(), (torch.randn(1, 16, 20, 20),))
    torch.export.save(program, tmp_path / "net.pt2")
    timed = []

    def seconds(calls):
        timed.append(list(calls))
        return {name: 1.0 if name == fastest else 2.0 for name in calls}

    monkeypatch.setattr(choose, "time_interleaved", seconds)
    name = str(tmp_path / "net.pt2")
    found = construct_model(ModelOptions(name=name, out=tmp_path / "out", graph_choices=2))
    assert timed == [[choose.RULES, "graph0"]]
    assert found.kept == "tuned" and found.difference is not None and found.difference < 1e-5
    about = json.loads((tmp_path / "out" / tuned_folder.ABOUT).read_text())
    assert any(about["graph"]) == (fastest != choose.RULES)


def test_one_graph_is_today_s_rules():
    assert choose.choose_graph(None, 1) == ()
