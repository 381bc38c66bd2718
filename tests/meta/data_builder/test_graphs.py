"""A graph of two operators: built, compared with PyTorch, timed, and written in TpuGraphs' format."""

from __future__ import annotations

import numpy as np
import programs as P
import pytest
import torch
from torch import nn
from tvm.target import Target

from data_builder.graphs import build as module
from data_builder.graphs import timing
from data_builder.graphs.encoding import OPCODES
from data_builder.graphs.job import Job
from wmsched.graph import read_graph


class Net(nn.Module):
    """A product over pixels, and a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x)))


def test_a_graph_of_two_operators_is_labelled(tmp_path, monkeypatch) -> None:
    torch.manual_seed(0)
    compared = module.deviation
    told: list[str] = []

    def deviation(outputs, expected, model):
        off, allowed = compared(outputs, expected, model)
        return (1.0, allowed) if len(told) == 2 else (off, allowed)  # the third is made wrong

    monkeypatch.setattr(module, "deviation", deviation)
    job, made = Job(tmp_path, "net-0"), (Net().eval(), torch.randn(1, 8, 12, 12))
    plan = module.build(job, Target(P.CPU), 4, made=made, on_configuration=told.append)
    assert told == ["ok", "ok", "refused", "ok"] and "outputs are off by 1" in plan.refused[0]
    assert [sorted(names) for names in plan.options] == [
        ["direct", "kernel", "product"],
        ["direct", "kernel"],
    ]
    assert plan.chosen[0] == (0, 0) and len(set(plan.chosen)) == 3

    job.add(timing.timed(job, Target(P.CPU), rounds=3))
    assert job.finish() == 3
    graph = read_graph(job.file)
    names = {code: name for name, code in OPCODES.items()}
    kinds = [names[code] for code in graph.node_opcode]
    assert kinds[0] == "input" and kinds.count("nn.conv2d") == 2 and "other" not in kinds
    assert [kinds[node] for node in graph.node_config_ids] == ["nn.conv2d"] * 2
    first, second = graph.node_config_ids
    assert graph.node_feat[first, 31:35].tolist() == [1, 1, 8, 16] and graph.node_feat[second, 107] == 16
    assert graph.node_feat[second, 21:25].tolist() == [1, 12, 12, 16]  # channels last
    assert graph.node_config_feat[0, :, 21].tolist() == [1, 1] and (graph.config_runtime > 0).all()
    with np.load(job.file) as file:
        assert len(file["region_costs"]) == 5 and (file["added_costs"] > 0).all()


def test_a_machine_that_slows_down_changes_no_order(monkeypatch) -> None:
    speed = {"first": 2.0, "second": 1.0, "third": 5.0}
    clock = iter(range(1, 10_000))
    monkeypatch.setattr(timing, "_turn", lambda call: speed[call] * (1 + 0.01 * next(clock)))
    found = timing.timing(list(speed), 20)
    assert found / found[0] == pytest.approx([1.0, 0.5, 2.5], rel=0.02)
