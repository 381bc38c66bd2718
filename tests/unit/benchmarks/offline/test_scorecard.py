"""What was asked beside what was measured: every number from lines, and the verdicts by them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from checkout import ROOT
from ranking_lines import ranking_line
from result_lines import run_line

from benchmarks.offline import online_learning, scorecard
from benchmarks.outcomes.outcomes import Outcomes
from wmsched.learn.evaluate.evaluate import write_json
from wmsched.learn.evaluate.quality import Estimate
from wmsched.learn.training.learning_curve import curve_markdown, curve_of


def searched(task: str, method: str, seconds: float, budget: int, **more):
    line = run_line(task, method, seconds, budget=budget, type=f"type of {task}", update_seconds=0.0)
    return line | more


def ranked(method: str, group: str, value: float):
    return ranking_line(method, group, value, top1=value, top5=value)


def test_the_slowest_task_decides_and_long_runs_must_not_be_behind() -> None:
    lines = [
        searched("a/0", "ansor", 1.0, 16), searched("a/0", "wmsched", 0.5, 16),
        searched("a/1", "ansor", 1.0, 16), searched("a/1", "wmsched", 1.25, 16),
        searched("a/0", "ansor", 1.0, 256), searched("a/0", "wmsched-online", 1.01, 256),
    ]  # fmt: skip
    rows = list(scorecard.searches(Outcomes(lines)))
    short, long = (row for row in rows if "slowest" in row[0])
    assert "16 trials" in short[0] and short[1:] == ("at least 0.9", "0.80 (a/1); mean 1.26", False)
    assert "wmsched-online, 256" in long[0] and long[1] == "at least 1" and long[3] is False


def test_speed_and_share_are_sums_over_the_same_tasks() -> None:
    cost = {"predict_seconds": 1.0, "update_seconds": 0.5, "search_seconds": 20.0}
    lines = [
        searched("a/0", "ansor", 1.0, 64, **cost, candidates=100),
        searched("a/0", "wmsched", 1.0, 64, **cost, candidates=900),
        searched("a/1", "ansor", 1.0, 64, **cost, candidates=1),  # ours has no run of it
    ]
    _, speed, share = scorecard.searches(Outcomes(lines))
    assert speed[2:] == ("9.0 (900 and 100)", True)
    assert share[2:] == ("7.5%", False)


def test_runs_with_processes_kept_are_told_apart() -> None:
    cost = {"predict_seconds": 1.0, "candidates": 100}
    lines = [
        searched("a/0", method, 1.0, 64, **cost, search_seconds=seconds, kept_workers=kept, seed=seed)
        for method in ("ansor", "wmsched")
        for seed, (seconds, kept) in enumerate([(50.0, False), (10.0, True)])
    ]
    shares = {row[0]: row[2] for row in scorecard.searches(Outcomes(lines)) if "share" in row[0]}
    assert shares == {
        "share of the tuning time in the model, 64 trials": "2.0%",
        "share of the tuning time in the model, 64 trials, processes kept": "10.0%",
    }


def test_a_margin_must_be_outside_its_interval() -> None:
    lines = {
        "ours": {f"w{n}": ranked("ours", f"w{n}", 0.9) for n in range(8)},
        "stock": {f"w{n}": ranked("stock", f"w{n}", 0.7) for n in range(8)},
        "plain": {f"w{n}": ranked("plain", f"w{n}", 0.7 if n % 2 else 1.0) for n in range(8)},
    }
    rows = {row[0]: row for row in scorecard.rankings(lines)}
    assert rows["top-1 on networks held out, 8 workloads"][3] is True
    assert rows["ours less stock, the same data"][3] is True
    assert rows["ours less plain phi, the same data"][3] is False
    text = scorecard.table(list(rows.values()))
    assert "| **no** |" in text and "TLP" not in text


def test_what_was_told_and_the_curve_are_read_back_as_they_were_written(tmp_path) -> None:
    found = [{(16, method): (0.5 + n / 10, 0.1) for method in online_learning.METHODS} for n in range(3)]
    found[2][16, "frozen"] = (float("nan"), 0.25)
    online_learning.write([*found, {}], tmp_path / "online.jsonl")
    np.testing.assert_equal(online_learning.read(tmp_path / "online.jsonl"), found)
    assert online_learning.table(online_learning.read(tmp_path / "online.jsonl")) == online_learning.table(
        found
    )
    curve = [
        {"method": "frozen", "records": 0, "tau": Estimate(float("nan"), float("nan"), float("nan"), 0)}
        | {key: Estimate(0.5, 0.4, 0.6, 7) for key in ("top1", "top5", "pairwise")}
    ]
    write_json({"bundle": "b", "dataset": "d", "curve": curve}, tmp_path / "curve.json")
    again = curve_of(json.loads((tmp_path / "curve.json").read_text()))
    assert str(again) == str(curve)  # NaN is not NaN
    assert curve_markdown(again) == curve_markdown(curve)


def test_the_card_goes_between_its_marks(tmp_path) -> None:
    runs, ranking, page = (tmp_path / name for name in ("runs.jsonl", "ranking.jsonl", "page.md"))
    runs.write_text("\n".join(json.dumps(searched("a/0", m, 1.0, 16)) for m in ("ansor", "wmsched")) + "\n")
    ranking.write_text(json.dumps(ranking_line("ours", "w", 0.9)) + "\n")
    page.write_text(f"before\n{scorecard.MARKS.begin}\nold\n{scorecard.MARKS.end}\nafter\n")
    assert scorecard.main([str(runs), "--ranking", str(ranking), "--into", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "1.00 (a/0)" in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="scorecard begins"):
        scorecard.main([str(runs), "--ranking", str(ranking), "--into", str(page)])


def test_the_page_says_what_the_committed_lines_say(capsys) -> None:
    results = ROOT / "benchmarks" / "results"
    runs = sorted(map(str, results.glob("cpu-*.jsonl")))
    options = {"ranking": "state-ranking.jsonl", "curve": "finetune.json", "online": "online.jsonl"}
    scorecard.main(
        [*runs, *(x for name, file in options.items() for x in (f"--{name}", str(results / file)))]
    )
    text = (ROOT / "docs" / "explanation" / "evaluation.md").read_text(encoding="utf-8")
    assert scorecard.MARKS.between(text) == capsys.readouterr().out.strip("\n")
