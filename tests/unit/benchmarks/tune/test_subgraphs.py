"""The representatives in PyTorch, and tuned ones beside them."""

from __future__ import annotations

import pytest
import torch

from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.report.subgraph_table import tables
from benchmarks.suites import REPRESENTATIVES, Representative
from benchmarks.tune.pytorch_subgraphs import program


@pytest.mark.parametrize("entry", REPRESENTATIVES, ids=lambda entry: entry.type)
def test_each_has_the_suite_s_shape(entry) -> None:
    found = program(entry, [torch.ones(shape) for shape in entry.shapes[:-1]])()
    assert tuple(found.shape) == entry.shapes[-1]


def test_what_nothing_is_written_for_is_said() -> None:
    with pytest.raises(ValueError, match="nothing in PyTorch is written for 'lstm'"):
        program(Representative("x", "X", "m", 0, "lstm", ((1, 2), (1, 2)), ""), [torch.ones(1, 2)])


def line(task, seconds):
    return {
        "kind": "run",
        "task": task,
        "method": "meta-wmsched",
        "budget": 64,
        "round_size": 64,
        "seed": 0,
        "status": "ok",
        "type": task.upper(),
        "best_seconds": seconds,
        "best_record": "r",
        "cpu": "c",
    }


def torch_line(task, executor, seconds):
    return {
        "kind": "subgraph",
        "task": task,
        "executor": executor,
        "tf32": False,
        "median": seconds,
        "status": "ok",
    }


def test_the_table_has_pytorch_s_times_and_the_mean_speedup() -> None:
    lines = [line("a", 2e-6), line("b", 8e-6), line("c", 1e-6)]
    lines += [torch_line("a", "eager", 8e-6), torch_line("b", "eager", 8e-6), torch_line("a", "graph", 1e-6)]
    means, each = tables(Outcomes(lines))
    assert [row[:2] + row[3:] for row in means.rows] == [
        ["meta-wmsched over PyTorch eager", "**2.00**", "1 of 2"],
        ["meta-wmsched over PyTorch graph", "**0.50**", "0 of 1"],
    ]
    # c has no line of PyTorch's
    assert [list(row) for row in each.rows] == [["A", "8.0", "1.0", "", "2.0"], ["B", "8.0", "", "", "8.0"]]
    assert tables(Outcomes(lines[:3])) == []
