"""Models beside other runtimes: ratios, tables, and that the README has the committed lines' one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from checkout import ROOT

from benchmarks.plan import read_all
from benchmarks.runtimes import bfloat16, child, compare, quantized
from benchmarks.scoreboard import whole_models

FILE = "benchmarks/results/emr-runtimes.jsonl"
ABOUT = {"cpu": "a processor", "cores": 2}


def line(model: str, runtime: str, median: float) -> dict:
    return {
        "kind": compare.KIND,
        "model": model,
        "runtime": runtime,
        "median": median,
        "p99": median,
        **ABOUT,
    }


LINES = [
    {"kind": compare.CONSTRUCT, "model": "a", "seconds": 20.4, "peak_bytes": 1, **ABOUT},
    line("a", "constructed", 9000.0),
    line("a", "constructed", 2000.0),  # measured again
    line("a", "onnxruntime", 3000.0),
    line("a", "openvino", 2500.0),
    line("a", "eager", 1000.0),
    line("b", "eager", 1000.0),
]


def test_the_last_line_counts_and_eager_is_no_runtime_to_beat() -> None:
    assert compare.medians(LINES)["a"]["constructed"] == 2000.0
    assert compare.over_best(LINES, "constructed") == {"a": 1.25}
    assert compare.over_best(LINES, "searched") == {}


def test_times_of_different_runs_are_not_compared() -> None:
    later = [line("a", "searched", 100.0), line("a", "openvino", 150.0)]
    assert compare.over_best([*LINES, *later], "searched") == {"a": 1.5}
    assert compare.over_best([*LINES, *later], "constructed") == {"a": 1.25}


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    ours = {**line("a", "constructed", 2.0), "turns": [1.0, 2.0, 9.0]}
    other = {**line("a", "openvino", 3.0), "turns": [2.0, 3.0, 9.0]}
    assert compare.over_best([ours, other], "constructed") == {"a": 1.5}


def test_a_geometric_mean() -> None:
    assert compare.geomean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(compare.geomean([]))


def test_tables() -> None:
    block = compare.block(LINES, "FILE")
    assert "| a | 20 | 2 | 3 | 2.5 |  | 1 | **1.25** |" in block and "| b |" not in block
    assert "geometric means: compile 1.25" in block and "a processor, 2 cores" in block
    searched = compare.block([*LINES[:-1], line("a", "searched", 1000.0), LINES[-1]], "FILE")
    assert "| a | 20 | 2 | 1 | 3 | 2.5 |  | 1 | **1.25** | **2.50** |" in searched
    assert "compile 1.25, 16 trials 2.50" in searched
    assert "| b |" in compare.table(LINES).markdown()


def test_the_readme_has_the_table_of_the_committed_lines() -> None:
    page = (ROOT / compare.PAGE).read_text(encoding="utf-8")
    made = compare.block(list(read_all([ROOT / FILE])), FILE)
    assert compare.MARKS.between(page) == made.strip("\n"), (
        f"stale: python -m benchmarks.runtimes.compare --out {FILE} --into {compare.PAGE}"
    )


def test_a_folder_is_wanted(capsys) -> None:
    with pytest.raises(SystemExit):
        compare.main(["--out", "nowhere.jsonl"])
    assert "--folder" in capsys.readouterr().err


def test_quantized_models_are_beside_what_they_were_made_of(tmp_path: Path) -> None:
    lines = [
        line("a", "constructed", 8000.0),
        line("a-int8", "constructed", 2000.0),
        line("a-int8", "onnxruntime", 3000.0),
        line("b-int8", "constructed", 1000.0),
        line("b-int8", "onnxruntime", 6000.0),
    ]
    medians = compare.medians(lines)
    assert quantized.ratios(medians, "fp32") == {"a-int8": 4.0}
    assert quantized.ratios(medians, "onnxruntime") == {"a-int8": 1.5, "b-int8": 6.0}
    assert quantized.ratios(medians, "openvino") == {}
    figures = {one.name: one for one in whole_models.WHOLE_MODELS}
    text = "\n".join(map(json.dumps, lines)) + "\n"
    (tmp_path / whole_models.INT8).write_text(text, encoding="utf-8")
    assert figures["precision.int8_over_fp32_geomean"].measure(tmp_path).value == pytest.approx(4.0)
    assert figures["precision.int8_over_onnxruntime_geomean"].measure(tmp_path).value == pytest.approx(3.0)
    with pytest.raises(ValueError, match="no quantized model is beside openvino"):
        figures["precision.int8_over_openvino_geomean"].measure(tmp_path)


def test_models_in_bfloat16_are_the_same_files_with_a_switch(tmp_path: Path) -> None:
    assert compare._given(tmp_path, "a-bf16") == [str(tmp_path / "a.onnx"), "--bf16"]
    assert compare._given(tmp_path, "a-int8") == [str(tmp_path / "a-int8.onnx")]
    assert compare._left_out("a-bf16") == ("onnxruntime",) and not compare._left_out("a")
    assert child.HALF == bfloat16.SUFFIX
    lines = [
        line("a", "constructed", 8000.0),
        line("a-bf16", "constructed", 2000.0),
        line("a-bf16", "openvino", 3000.0),
    ]
    medians = compare.medians(lines)
    assert quantized.ratios(medians, "fp32") == {}
    assert quantized.ratios(medians, "fp32", suffix="-bf16") == {"a-bf16": 4.0}
    figures = {one.name: one for one in whole_models.WHOLE_MODELS}
    text = "\n".join(map(json.dumps, lines)) + "\n"
    (tmp_path / whole_models.BF16).write_text(text, encoding="utf-8")
    assert figures["precision.bf16_over_fp32_geomean"].measure(tmp_path).value == pytest.approx(4.0)
    assert figures["precision.bf16_over_openvino_geomean"].measure(tmp_path).value == pytest.approx(1.5)
    (tmp_path / whole_models.BF16).write_text(json.dumps(lines[0]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no model in bfloat16 is beside fp32"):
        figures["precision.bf16_over_fp32_geomean"].measure(tmp_path)
