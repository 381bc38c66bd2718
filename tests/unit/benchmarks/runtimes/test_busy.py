"""`benchmarks.runtimes.busy`: what its lines come to."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.runtimes import busy, child


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


def test_the_table_has_a_row_for_each_model_and_runtime() -> None:
    text = busy.table([*LINES, line("ours", 0, 3000, 3300, model="mobilenetv2")]).markdown()
    assert "| lstm | ours | 0.100 | 2.00, 9.00 | 4.00, 9.00 |" in text
    assert "| mobilenetv2 | ours | 3.000 |  |  |" in text
    assert "busy.worst_over_onnxruntime 1.5" in text


def test_a_later_line_of_the_same_run_counts() -> None:
    assert busy.figures([*LINES, line("ours", 1, 150, 150)])["busy.worst_over_onnxruntime"] == 0.6818


def test_models_that_are_served_count_too_beside_onnxruntimes_processes() -> None:
    def served(runtime: str, way: str, median: float, p99: float) -> dict:
        return {"kind": busy.SERVED, "model": "lstm", "runtime": runtime, "way": way, "processes": 4,
                "calls": 9, "median": median, "p99": p99}  # fmt: skip

    lines = [*LINES, served(busy.OURS, busy.APART, 400, 500), served(busy.OURS, busy.FORKED, 400, 1600)]
    assert busy.served(lines)["lstm", busy.OURS, busy.FORKED] == (4.0, 16.0)
    assert busy.figures(lines)["busy.worst_over_onnxruntime"] == 1.5  # without onnxruntime's: not compared
    lines.append(served(busy.ORT, busy.APART, 200, 400))
    assert busy.figures(lines)["busy.worst_over_onnxruntime"] == 2.0  # 16 beside 8
    assert "| 4 at once, processes | 4 at once, forked |" in busy.table(lines).markdown()
    assert "| 4.00, 5.00 | 4.00, 16.00 |" in busy.table(lines).markdown()


def test_a_percentile_of_few_calls_lies_between_the_largest() -> None:
    assert busy.quantile([*range(100, -1, -1)], 0.99) == 99
    assert busy.quantile([1.0, 3.0], 0.75) == 2.5
    assert busy.quantile([7.0], 0.99) == 7


def test_tvms_pool_is_called_alone() -> None:
    assert [busy.is_measured(busy.POOL, level) for level in (0, 1)] == [True, False]
    assert busy.is_measured(busy.ORT, 4)


def test_copies_of_a_process_call_at_once() -> None:
    seen = []
    found = child.by_workers(lambda: seen.append(os.getpid()), 0.0, 3)
    assert len(found) == 3 * child.LEAST_CALLS
    assert not seen  # none by this process
    with pytest.raises(RuntimeError, match="worker"):
        child.by_workers(lambda: 1 / 0, 0.0, 1)


def test_busy_programs_run_meanwhile_and_end() -> None:
    with busy.busy(2):
        pass
    with pytest.raises(ZeroDivisionError), busy.busy(1):
        raise ZeroDivisionError


def test_a_child_that_ends_is_an_error(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="ended with"):
        busy.Child(busy.ORT, tmp_path / "none.onnx", sys.executable)
