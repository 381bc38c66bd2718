"""The score board: the committed file is what the command writes, and each of its rows holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report import glance
from benchmarks.scoreboard import scoreboard
from benchmarks.scoreboard.figure import RESULTS, ROOT, Figure, Measured, is_met, parse_bound

COMMITTED = ROOT / scoreboard.FILE


def rows() -> list[dict]:
    return json.loads(COMMITTED.read_text(encoding="utf-8"))


HALF_MORE = Measured(1.5)


def made(name: str = "a.b", *, asked: str = "", lines: tuple[str, ...] = ("x.jsonl",), value=HALF_MORE):
    return Figure(name=name, lines=lines, command="python -m some", measure=lambda _: value, asked=asked)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with one file of lines."""
    (tmp_path / RESULTS).mkdir(parents=True)
    (tmp_path / RESULTS / "x.jsonl").write_text("{}\n")
    return tmp_path


def test_the_committed_file_is_what_the_command_writes() -> None:
    written = COMMITTED.read_text(encoding="utf-8")
    assert written == scoreboard.text(scoreboard.board()), f"stale: {scoreboard.BOARD} --write"


def test_every_row_is_whole() -> None:
    keys = ["name", "asked", "measured", "low", "high", "lines", "command"]
    for row in rows():
        assert list(row) == keys
        parse_bound(row["asked"])
        assert row["lines"] and all((ROOT / name).is_file() for name in row["lines"]), row["name"]
        assert row["command"].startswith("python -m benchmarks."), row["name"]
        assert (row["low"] is None) == (row["high"] is None)
        assert row["low"] is None or row["low"] <= row["measured"] <= row["high"], row["name"]
    names = [row["name"] for row in rows()]
    assert len(set(names)) == len(names)


def test_every_row_of_the_readmes_table_is_on_the_board() -> None:
    measured = {row["name"]: row for row in rows()}
    shown = [line.split(" | ") for line in glance.table(glance.MAIN).splitlines() if "**" in line]
    main = [row for row in measured.values() if row["command"] == "python -m benchmarks.report.glance"]
    speedups = [row for row in main if not row["name"].endswith(".search-time")]
    assert len(shown) == len(speedups)
    for cells, row in zip(shown, speedups, strict=True):
        assert f"**{row['measured']:.2f}**" == cells[5], row["name"]
        assert abs(row["low"] - float(cells[6].split(" to ")[0])) < 0.006, row["name"]
        if row["asked"]:
            assert row["asked"] == f"min {cells[8]}"
        beside = measured.get(f"{row['name']}.search-time")
        assert (f"{beside['measured']:.2f}" if beside else "") == cells[9].strip(" |")


@pytest.mark.parametrize("asked", ["min1.5", "at least 2", "min", "max x", "MIN 1", "min 1.5 "])
def test_what_is_no_bound_is_refused(asked: str, root: Path) -> None:
    with pytest.raises(ValueError, match="is no bound"):
        parse_bound(asked)
    with pytest.raises(ValueError, match=r"figure a\.b: .* is no bound"):
        scoreboard.board([made(asked=asked)], root)


def test_bounds_are_met_or_not() -> None:
    assert is_met("min 1.5", 1.5) and not is_met("min 1.5", 1.49)
    assert is_met("max 0.3", 0.3) and not is_met("max 0.3", 0.31)
    assert is_met("", 0.0) is None


def test_a_figure_without_its_lines_is_left_out(root: Path) -> None:
    some = [made("here"), made("not", lines=("x.jsonl", "y.jsonl"))]
    assert [row["name"] for row in scoreboard.board(some, root)] == ["here"]


def test_two_figures_of_one_name_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match=r"more than one figure is called a\.b"):
        scoreboard.board([made(), made()], root)


def test_numbers_are_rounded_and_a_row_is_a_line(root: Path) -> None:
    figure = made(asked="min 1.2", value=Measured(1.234567, 1.0000049, 23456.7))
    (row,) = scoreboard.board([figure], root)
    assert (row["measured"], row["low"], row["high"]) == (1.235, 1.0, 23460.0)
    assert row["lines"] == ["benchmarks/results/x.jsonl"]
    assert scoreboard.text([row]).count("\n") == 3 and json.loads(scoreboard.text([row])) == [row]
    assert scoreboard.shown(row).endswith("1.235 (1 to 2.346e+04)  min 1.2: met")
    assert scoreboard.shown(row | {"measured": 1.1, "low": None}).endswith("1.1  min 1.2: SHORT")
