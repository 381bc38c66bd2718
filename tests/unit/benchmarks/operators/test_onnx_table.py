"""The page of ONNX's operators: what the command writes, from lines of the suite."""

from __future__ import annotations

from benchmarks.operators import onnx_table
from benchmarks.operators.lines import read


def line(case, who, verdict, reason="", operator="Add", sort="tensors"):
    return {
        "kind": "onnx_case", "case": case, "who": who, "operator": operator, "sort": sort,
        "verdict": verdict, "reason": reason,
    }  # fmt: skip


def test_the_committed_page_is_what_the_command_writes():
    page = onnx_table.PAGE.read_text(encoding="utf-8")
    assert page == onnx_table.written(page, read(onnx_table.LINES)), (
        "stale: python -m benchmarks.operators.onnx_table --write"
    )


def test_a_later_line_of_a_case_counts_and_bodies_have_no_row():
    lines = [
        line("test_add", "ours", "wrong"),
        line("test_add", "ours", "right"),
        line("test_add", "onnxruntime", "right"),
        line("test_celu_expanded", "ours", "right", operator="Constant"),
    ]
    assert "| right | 2 | 0 | 1 |" in onnx_table.counts(lines)
    assert "| wrong | 0 | 0 | 0 |" in onnx_table.counts(lines)
    table = onnx_table.operators(lines)
    assert "| Add | 1 | 1 | 0 | 1 |" in table and "Constant" not in table


def test_reasons_are_those_of_the_operator_and_fit_the_page():
    why = "Cast: output has elements of the type INT4, which is not supported"
    lines = [
        line("test_cast", "ours", "refused", why, "Cast"),
        line("test_det", "ours", "refused", "Det: " + "long " * 40, "Det"),
    ]
    table = onnx_table.refused(lines)
    assert "| Cast | 1 | elements of INT4 |" in table
    assert max(map(len, table.splitlines())) < 120


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"kind": "onnx_case", "case": "a"}\n{"kind": "onn')
    assert read(path) == [{"kind": "onnx_case", "case": "a"}]
    assert read(tmp_path / "none.jsonl") == []
