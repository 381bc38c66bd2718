"""Ratios of one run of three lengths to runs of one, from lines."""

from __future__ import annotations

import pytest

from benchmarks.runtimes import shapes


def run(case: str, lengths: str, seconds: float) -> dict:
    return {"kind": shapes.RUN, "case": case, "lengths": lengths, "seconds": seconds}


def turns(case: str, length: int, several: list[float], alone: list[float]) -> dict:
    both = {"several": several, "alone": alone}
    return {"kind": shapes.LATENCY, "case": case, "length": length, "turns": both}


def test_seconds_are_of_all_lengths_over_the_longest() -> None:
    lines = [
        run("2:4", "128", 100.0),
        run("2:4", "16", 60.0),
        run("2:4", "16/64/128", 140.0),
        run("12:4", "128", 9.0),
    ]
    assert shapes.three_over_one(lines) == {"2:4": pytest.approx(1.4)}


def test_a_latency_is_compared_turn_by_turn() -> None:
    lines = [turns("2:4", 16, [10.0, 22.0, 10.0], [10.0, 20.0, 20.0]), run("2:4", "16", 1.0)]
    assert shapes.over_own(lines) == {("2:4", 16): pytest.approx(1.0)}


def test_the_table_has_a_row_a_case_and_leaves_open_what_is_not_measured() -> None:
    lines = [run("2:4", "128", 2.0), run("2:4", "16/64/128", 3.0), turns("2:4", 64, [3.0], [2.0])]
    assert shapes.table(lines).rows == [["2:4", "1.50", "", "1.500", ""]]
