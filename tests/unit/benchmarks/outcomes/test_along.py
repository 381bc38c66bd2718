"""Speedups along the trials, for runs whose programs were timed elsewhere."""

from __future__ import annotations

from benchmarks.outcomes import along
from benchmarks.outcomes.outcomes import Outcomes


def line(method, curve, **more):
    return {
        "kind": "run",
        "task": "a",
        "method": method,
        "budget": 64,
        "round_size": 64,
        "seed": 0,
        "status": "ok",
        "best_seconds": curve[-1][2],
        "best_record": "r",
        "cpu": "c",
        "curve": curve,
        **more,
    }


OURS = [[1, 0.0, 2e-6], [20, 0.0, 1e-6], [64, 0.0, 1e-6]]
STOCK = [[1, 0.0, 8e-6], [3, 0.0, 4e-6], [64, 0.0, 4e-6]]


def test_each_row_is_the_ratio_after_so_many_trials() -> None:
    data = Outcomes([line("meta-wmsched", OURS, deferred=True), line("meta-xgb", STOCK, deferred=True)])
    (table,) = along.tables(data)
    assert [row[:2] for row in table.rows] == [
        ["meta-wmsched, 1, over meta-xgb, 1", "**4.00**"],
        ["meta-wmsched, 4, over meta-xgb, 4", "**2.00**"],
        ["meta-wmsched, 16, over meta-xgb, 16", "**2.00**"],
        ["meta-wmsched, 64, over meta-xgb, 64", "**4.00**"],
        ["meta-wmsched, 16, over meta-xgb, 64", "**2.00**"],
    ]


def test_runs_that_have_times_are_shown_by_time() -> None:
    assert along.tables(Outcomes([line("meta-wmsched", OURS), line("meta-xgb", STOCK)])) == []


def test_before_the_first_candidate_that_ran_there_is_nothing_to_set_beside() -> None:
    late = [[2, 0.0, 2e-6], [64, 0.0, 1e-6]]
    data = Outcomes([line("meta-wmsched", late, deferred=True), line("meta-xgb", STOCK, deferred=True)])
    (table,) = along.tables(data)
    assert [row[0] for row in table.rows] == [
        "meta-wmsched, 4, over meta-xgb, 4",
        "meta-wmsched, 16, over meta-xgb, 16",
        "meta-wmsched, 64, over meta-xgb, 64",
        "meta-wmsched, 16, over meta-xgb, 64",
    ]
