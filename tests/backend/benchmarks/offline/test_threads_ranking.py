"""`benchmarks.offline.threads_ranking`: emulated runs to lines, lines to a table."""

from __future__ import annotations

import json

import pytest
from ansor_options import SMALL
from tvm import auto_scheduler

from benchmarks.offline import threads_ranking
from benchmarks.plan import read
from benchmarks.tune.emulated import emulated
from benchmarks.tune.measuring import search_task
from wmsched import zoo
from wmsched.ansor.runner import several_places
from wmsched.ansor.workers import kept_workers

pytestmark = pytest.mark.slow  # a program of 64 cores, emulated, is timed for each candidate


@pytest.fixture(scope="module")
def results(target, tmp_path_factory):
    """Eight random candidates of GPT-2's layer normalisation as on 64 cores, and the line of such a run."""
    folder = tmp_path_factory.mktemp("emulated")
    (row,) = zoo.find("gpt2/8")
    task = search_task(row, target, 64)
    policy = auto_scheduler.SketchPolicy(
        task, auto_scheduler.RandomModel(), params=dict(SMALL), seed=1, verbose=0
    )
    measurer = auto_scheduler.measure.ProgramMeasurer(
        auto_scheduler.LocalBuilder(),
        auto_scheduler.LocalRunner(timeout=10),
        [auto_scheduler.RecordToFile(str(folder / "log.json"))],
        verbose=0,
    )
    with kept_workers(), several_places(), emulated(64):
        policy.continue_search_one_round(8, measurer)
    line = {
        "kind": "run", "task": "gpt2/8", "method": "ansor", "budget": 8, "round_size": 8, "seed": 0,
        "status": "ok", "emulated_threads": 64, "target": str(task.target), "log": "log.json",
    }  # fmt: skip
    (folder / "runs.jsonl").write_text(json.dumps(line) + "\n")
    return folder


def test_lines_and_their_table(results, capsys) -> None:
    out = results / "ranking.jsonl"
    assert threads_ranking.main([str(results / "runs.jsonl"), "--out", str(out)]) == 0
    (line,) = read(out)
    assert (line["task"], line["threads"], line["records"]) == ("gpt2/8", 64, 8)
    assert all(0 <= line[key][name] <= 1 for key in ("told", "alone") for name in ("top1", "top5", "pairs"))
    printed = capsys.readouterr().out
    assert threads_ranking.main([str(out)]) == 0
    assert capsys.readouterr().out == printed
    assert f"| 64 | 1 | told of them | {line['told']['top1']:.3f}" in printed


def test_runs_of_this_machine_are_no_such_lines(results, tmp_path) -> None:
    line = json.loads((results / "runs.jsonl").read_text()) | {"emulated_threads": 0}
    (tmp_path / "runs.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(Exception, match="--emulate-threads"):
        threads_ranking.main([str(tmp_path / "runs.jsonl"), "--out", str(tmp_path / "out.jsonl")])
    with pytest.raises(SystemExit):
        threads_ranking.main([str(tmp_path / "runs.jsonl")])
