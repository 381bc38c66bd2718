"""How soon ours is where the baseline ends: by made-up curves."""

from __future__ import annotations

from benchmarks.outcomes import sooner
from benchmarks.outcomes.outcomes import Outcomes


def run(task, method, curve, budget=1024, again=None, **more):
    """Its result line, and that of a second measurement that gave `again` seconds."""
    best = curve[-1][2]
    names = {"task": task, "method": method, "budget": budget, "round_size": 64, "seed": 0}
    line = {"kind": "run", "status": "ok", "cpu": "c", "best_seconds": best, "best_record": "r"}
    entry = {**names, "median": again or best, "spread": 0.0, "record": "r"}
    return [line | names | {"curve": curve} | more, {"kind": "remeasure", "task": task, "entries": [entry]}]


STOCK = [[1, 2.0, 9e-3], [64, 40.0, 5e-3], [500, 300.0, 4e-3], [1024, 600.0, 4e-3]]
OURS = [[1, 3.0, 6e-3], [16, 10.0, 4e-3], [200, 50.0, 3e-3], [1024, 150.0, 3e-3]]


def test_ours_is_there_when_its_curve_first_is_below_the_baseline_s_last() -> None:
    lines = run("a", "ansor-script", STOCK) + run("a", "wmsched-script", OURS, kept_workers=True)
    (table,) = sooner.tables(Outcomes(lines))
    assert table.rows == [
        ["a", "4", "500", "300", "16", "10", "30.0"],
        ["**geometric mean of 1 of 1**", "", "", "", "", "", "**30.0**"],
    ]
    assert table.title == "How soon wmsched-script is where ansor-script ends, 1024 trials"


def test_what_a_run_noted_is_taken_as_it_came_out_when_measured_again() -> None:
    # ours noted 3 ms and takes 4.5: what it noted as 4 after 16 trials would take 6; stock ends at 5
    lines = run("a", "ansor-script", STOCK, again=5e-3) + run("a", "wmsched-script", OURS, again=4.5e-3)
    (table,) = sooner.tables(Outcomes(lines))
    assert table.rows[0] == ["a", "5", "500", "300", "200", "50", "6.0"]


def test_one_that_never_gets_there_is_said_and_does_not_count() -> None:
    lines = run("a", "ansor-script", STOCK) + run("a", "wmsched-script", OURS)
    lines += run("b", "ansor-script", STOCK) + run("b", "wmsched-script", OURS, again=7e-3)
    (table,) = sooner.tables(Outcomes(lines))
    assert table.rows[1] == ["b", "4", "500", "300", "not in 1024", "", ""]
    assert table.rows[2][0] == "**geometric mean of 1 of 2**" and table.rows[2][-1] == "**30.0**"


def test_only_long_runs_and_runs_whose_seconds_mean_the_same() -> None:
    short = run("a", "ansor-script", STOCK, 64) + run("a", "wmsched-script", OURS, 64)
    assert sooner.tables(Outcomes(short)) == []
    unlike = run("a", "ansor", STOCK) + run("a", "wmsched", OURS, kept_workers=True)
    assert sooner.tables(Outcomes(unlike)) == []
    assert sooner.tables(Outcomes(run("a", "ansor", STOCK) + run("a", "wmsched", OURS)))
