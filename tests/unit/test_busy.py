"""`benchmarks.runtimes.busy`: what its lines come to."""

from __future__ import annotations

import sys

import pytest

from benchmarks.plan import Results
from benchmarks.runtimes import busy, disturbed


def line(runtime: str, level: int, median: float, p99: float, model: str = "lstm") -> dict:
    return {
        "kind": busy.KIND, "model": model, "runtime": runtime, "busy": level, "median": median, "p99": p99
    }  # fmt: skip


LINES = [
    line("ours", 0, 100, 110),
    line("tvm-pool", 0, 125, 130),
    line("onnxruntime", 0, 50, 55),
    line("ours", 1, 200, 900),
    line("tvm-pool", 1, 90_000, 120_000),
    line("onnxruntime", 1, 110, 300),
    line("ours", 2, 400, 900),  # without onnxruntime's: not compared
    {"kind": busy.OVERHEAD, "model": "lstm", "load": 101.0, "bare": 100.0, "ratio": 1.01},
    {"kind": busy.OVERHEAD, "model": "lstm", "load": 103.0, "bare": 100.0, "ratio": 1.03},
]


def test_slow_downs_are_over_the_median_alone() -> None:
    found = busy.slowdowns(LINES)
    assert found["lstm", 1, "ours"] == (2.0, 9.0)
    assert found["lstm", 1, "onnxruntime"] == (2.2, 6.0)


def test_figures_are_the_worst_of_medians_and_99th_percentiles() -> None:
    assert busy.figures(LINES) == {
        "busy.worst_over_onnxruntime": 1.5,
        "busy.alone_over_tvm_pool": 0.8,
        "call.overhead_worst": 1.03,
    }
    assert busy.figures([]) == {}


def pair(model: str, seed: int, ratio: float) -> dict:
    return {"kind": disturbed.PAIR, "model": model, "seed": seed, "programs": 1, "ratio": ratio}


def test_a_disturbed_search_is_compared_by_model(tmp_path) -> None:
    lines = [pair("a", 1, 9.0), pair("a", 1, 1.0), pair("a", 2, 1.21), pair("b", 1, 0.9)]
    found = disturbed.figures(lines)
    assert found["disturbed.worst"] == pytest.approx(1.1)
    assert found["disturbed.geomean"] == pytest.approx((1.1 * 0.9) ** 0.5)
    assert disturbed.figures([]) == {}
    assert "| a | 2 | 1.100 | 1.000 | 1.210 |" in disturbed.table(lines).markdown()
    results = Results(tmp_path / "lines.jsonl")
    results.append({**pair("a", 1, 1.0), "alone": 1.0, "busy": 1.0})
    assert disturbed.ratios(Results(tmp_path / "lines.jsonl").lines) == {"a": [1.0]}


def test_a_task_above_its_share_is_counted() -> None:
    report = {"tasks": [{"trials": n, "in_model": s} for n, s in ((20, 1.0), (10, 2.0), (5, None), (5, 1.0))]}
    line = {"kind": disturbed.SEARCH, **disturbed.shares(report)}
    assert line["trial_shares"] == [0.5, 0.25, 0.125, 0.125] and line["time_shares"] == [0.25, 0.5, 0.0, 0.25]
    assert disturbed.over_share([line]) == 1
    report["tasks"][0]["in_model"] = 9.0
    assert disturbed.over_share([{"kind": disturbed.SEARCH, **disturbed.shares(report)}]) == 0


def test_the_table_has_a_row_for_each_model_and_runtime() -> None:
    text = busy.table([*LINES, line("ours", 0, 3000, 3300, model="mobilenetv2")]).markdown()
    assert "| lstm | ours | 0.100 | 2.00, 9.00 | 4.00, 9.00 |" in text
    assert "| mobilenetv2 | ours | 3.000 |  |  |" in text
    assert "busy.worst_over_onnxruntime 1.5" in text


def test_a_later_line_of_the_same_run_counts() -> None:
    assert busy.figures([*LINES, line("ours", 1, 150, 150)])["busy.worst_over_onnxruntime"] == 0.6818


def test_busy_programs_run_meanwhile_and_end() -> None:
    with busy.busy(2):
        pass
    with pytest.raises(ZeroDivisionError), busy.busy(1):
        raise ZeroDivisionError


def test_a_child_that_ends_is_an_error(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="ended with"):
        busy.Child(busy.ORT, tmp_path / "none.onnx", sys.executable)
