"""Whole models of tuned tasks: which are built, of which records, and how they are set beside PyTorch."""

import json

from result_lines import run_line

from benchmarks.models import compiled
from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.plan import read
from benchmarks.report import whole
from benchmarks.tune import child
from wmsched import zoo

NEO = "gpt-neo-2.7b-attention"


def test_a_model_is_built_from_its_tasks_records_once_all_are_tuned(tmp_path, monkeypatch, capsys):
    tuned, out = tmp_path / "runs.jsonl", tmp_path / "whole.jsonl"
    lines = []
    for row in zoo.find(NEO):
        lines += [run_line(row["name"], "ansor", 4e-3, seed=seed) for seed in (0, 1)]
        lines.append(run_line(row["name"], "wmsched", 1e-3, vector_math=True))
    lines.append(run_line("gpt2/0", "wmsched", 1e-3))
    tuned.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = []

    def call(module, spec, *, timeout, output):
        asked.append((module, spec))
        # the seeds of ansor, then ours, whose second does not build
        entries = [{"seconds": [s], "median": s, "spread": 0.0, "missed": []} for s in (0.04, 0.09)]
        return {"status": "ok", "threads": 1, "entries": [*entries, {"error": "no kernel", "missed": []}]}

    monkeypatch.setattr(child, "call", call)
    command = [str(tuned), "--budget", "16", "--models", f"{NEO},gpt2", "--out", str(out)]
    assert compiled.main(command) == 1
    ((module, spec),) = asked
    assert module == "benchmarks.models.compiled" and spec["model"] == NEO
    assert [(len(lines), vectors) for lines, vectors in spec["choices"]] == [
        (5, False),
        (5, False),
        (5, True),
    ]
    assert spec["choices"][2][0] == [f"{row['name']}-wmsched-0.001" for row in zoo.find(NEO)]
    assert "gpt2: not every task is tuned at 16 trials" in " ".join(capsys.readouterr().err.split())
    found = [(line["method"], line["seed"], line["status"], line["vector_math"]) for line in read(out)]
    assert found == [("ansor", 0, "ok", False), ("ansor", 1, "ok", False), ("wmsched", 0, "error", True)]


def test_whole_models_are_set_beside_pytorch_and_the_baselines():
    line = {"kind": "whole", "model": NEO, "budget": 64, "round_size": 64, "status": "ok"}
    lines = [run_line("softmax", "ansor", 1.0, budget=64), run_line("softmax", "wmsched", 1.0, budget=64)]
    lines += [line | {"method": "ansor", "seed": s, "median": m} for s, m in enumerate([0.03, 0.04, 0.05])]
    lines.append(line | {"method": "wmsched", "seed": 0, "median": 0.01})
    eager = {"kind": "pytorch", "model": NEO, "executor": "eager", "threads": 1, "status": "ok"}
    first, second = whole.tables(Outcomes([*lines, eager | {"median": 0.02}]))
    assert first.rows == [[NEO, "20.000", "40.000", "10.000"]]
    assert [row[:2] for row in second.rows] == [
        ["wmsched, 64 trials, whole model, over PyTorch eager, 1 thread", "**2.00**"],
        ["wmsched, 64 trials, whole model, over ansor, 64 trials", "**4.00**"],
    ]
