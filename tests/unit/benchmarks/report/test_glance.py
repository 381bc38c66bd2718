"""The tables at a glance: rows from committed lines of their machine, pages as the command prints them."""

import json
from pathlib import Path

import pytest
from checkout import ROOT
from result_lines import run_line

from benchmarks.report import glance
from benchmarks.report.glance import EMERALD, Row

HERE = "Some processor (family 6, model 207)"


def written(folder: Path, lines) -> None:
    (folder / "r.jsonl").write_text("".join(json.dumps(line | {"cpu": HERE}) + "\n" for line in lines))


def line(row: Row, folder: Path) -> list[str]:
    return glance.line(row, glance.read("r", folder))


def runs(method: str, seconds: float, *, budget: int = 64, seed: int = 0):
    return [
        run_line(f"t/{i}", method, seconds * (1 + i), type=f"type {i}", budget=budget, seed=seed)
        for i in range(3)
    ]


@pytest.mark.parametrize(
    "name, made, rows, option",
    [
        ("docs/index.md", glance.brief, glance.BRIEF, "--brief "),
        ("docs/explanation/results.md", glance.table, glance.MAIN, ""),
        ("benchmarks/results/results.md", glance.table, glance.ROWS, "--all "),
    ],
)
def test_pages_have_what_the_command_prints(name, made, rows, option):
    page = (ROOT / name).read_text(encoding="utf-8")
    asked = f"python -m benchmarks.report.glance {option}--into {name}"
    assert glance.MARKS.between(page) == made(rows), asked


def test_the_brief_table_is_of_one_number_of_trials_and_of_all_22():
    assert {(row.trials, row.against, row.of) for row in glance.BRIEF} == {(64, 64, "")}
    with pytest.raises(ValueError, match=r"one number of trials, these rows are of \[16, 64\]"):
        glance.brief([row for row in glance.MAIN if row.files == "zen3-sixteen"])


def test_a_row_compares_what_both_have(tmp_path):
    written(tmp_path, runs("ansor", 3e-3) + runs("wmsched", 2e-3) + runs("wmsched", 1e-3, budget=16)[:2])
    row = Row("what", EMERALD, "r", "wmsched", "ansor")
    assert line(row, tmp_path) == [
        "what", EMERALD[0], "3 subgraphs", "stock Ansor", "64", "**1.50**", "1.50 to 1.50", "3 of 3",
        "1.54", "1.00",
    ]  # fmt: skip
    fewer = line(Row("what", EMERALD, "r", "wmsched", "ansor", 16, 64), tmp_path)
    assert fewer[2:6] == ["2 subgraphs", "stock Ansor", "16 to 64", "**3.00**"]
    assert fewer[-2:] == ["1.25", "1.00"]


def test_searches_are_set_beside_theirs_all_together(tmp_path):
    theirs = [line | {"search_seconds": 10.0 * (k + 1)} for k, line in enumerate(runs("ansor", 3e-3))]
    ours = [line | {"search_seconds": 6.0} for line in runs("wmsched", 2e-3)]
    row = Row("what", EMERALD, "r", "wmsched", "ansor")
    written(tmp_path, theirs + ours)
    assert line(row, tmp_path)[-1] == "0.30"
    written(tmp_path, theirs + [line | {"deferred": True} for line in ours])
    assert line(row, tmp_path)[-1] == ""  # timed elsewhere: proposing took that long


def test_seeds_are_named_where_there_are_several(tmp_path):
    both = runs("ansor", 3e-3) + runs("wmsched", 2e-3)
    again = runs("ansor", 3e-3, seed=1) + runs("wmsched", 1e-3, seed=1)
    row = Row("what", EMERALD, "r", "wmsched", "ansor")
    written(tmp_path, both + again)
    assert line(row, tmp_path)[2] == "3 subgraphs, 2 seeds"
    written(tmp_path, [line for line in both + again if line["task"] != "t/0" or not line["seed"]])
    assert line(row, tmp_path)[2] == "3 subgraphs, 1 to 2 seeds"


def test_whole_models_are_set_against_the_same_models(tmp_path):
    def whole(method, model, seconds):
        more = {"model": model, "seed": 0, "status": "ok", "round_size": 64, "budget": 64}
        return more | {"kind": "whole", "method": method, "median": seconds}

    ours, theirs = "wmsched-script", "ansor-script"
    eager = {
        "kind": "pytorch",
        "model": "a",
        "executor": "eager",
        "threads": 1,
        "status": "ok",
        "median": 4e-3,
    }
    models = [whole(theirs, "a", 3e-3), whole(theirs, "b", 3e-3), whole(ours, "a", 1e-3)]
    written(tmp_path, [*runs(theirs, 3e-3), *runs(ours, 1e-3), *models, eager])
    found = line(Row("what", EMERALD, "r", ours, theirs, of=glance.WHOLE), tmp_path)
    assert found[2] == "1 of 7 models, built whole" and found[5] == "**3.00**"
    assert line(Row("what", EMERALD, "r", ours, glance.EAGER, of=glance.WHOLE), tmp_path)[5] == "**4.00**"


def test_lines_of_another_machine_or_with_nothing_to_compare_are_refused(tmp_path):
    written(tmp_path, runs("ansor", 3e-3))
    with pytest.raises(ValueError, match="wmsched and ansor have no task in common"):
        line(Row("what", EMERALD, "r", "wmsched", "ansor"), tmp_path)
    with pytest.raises(ValueError, match=r"measured on .*207\), not on EPYC, Zen 5"):
        line(Row("what", glance.ZEN5, "r", "wmsched", "ansor"), tmp_path)
