"""The page of PyTorch's operators: what the command writes of lines, and how results differ."""

from __future__ import annotations

import pytest
import torch

from benchmarks.operators import torch_table
from benchmarks.operators.lines import read
from benchmarks.operators.torch_cases import apart, is_named


def line(case, who, verdict, reason=""):
    return {
        "kind": "torch_case", "case": case, "who": who, "operator": case, "verdict": verdict,
        "reason": reason,
    }  # fmt: skip


def test_the_committed_page_is_what_the_command_writes():
    page = torch_table.PAGE.read_text(encoding="utf-8")
    assert page == torch_table.written(page, read(torch_table.LINES)), (
        "stale: python -m benchmarks.operators.torch_table --write"
    )


def test_the_share_is_of_what_torch_export_takes():
    lines = [
        line("abs", "ours", "wrong"),
        line("abs", "ours", "right"),
        line("svd", "ours", "refused", "aten._linalg_svd.default: no solvers"),
        line("equal", "ours", "not exportable"),
        line("empty", "ours", "no tensor"),
    ]
    assert torch_table.tally(lines, "ours")["exported"] == 2
    assert "| right, of those that torch.export takes | 50% | 0% |" in torch_table.counts(lines)
    assert torch_table.refused(lines) == "- no solvers (1): `svd`"


def test_lines_of_the_page_fit_it():
    lines = [line(f"operator_{k}", "ours", "refused", "aten.x.default: " + "long " * 60) for k in range(40)]
    assert max(map(len, torch_table.refused(lines).splitlines())) <= 120


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (torch.tensor([1.0, float("nan")]), ""),
        (torch.tensor([1.0, float("nan")]).double(), "type torch.float64 for torch.float32"),
        (torch.tensor([[1.0, float("nan")]]), "shape [1, 2] for [2]"),
        (torch.tensor([1.01, float("nan")]), "values differ, of shape [2]"),
    ],
)
def test_type_shape_and_values_count(found, why):
    assert apart([found], [torch.tensor([1.0, float("nan")])]) == why


def test_a_refusal_names_an_operator_by_its_full_name_or_as_a_word():
    assert is_named("aten.svd.default: no", [])
    assert is_named("the operator sort is not known", ["sort"])
    assert not is_named("a sorted row", ["sort"])
