"""The live table, on a console that is a terminal and on one that is not."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from wmsched.base.console import own_console
from wmsched.tune.progress import Line, LiveTable, duration, latency


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def show(table: LiveTable) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table.render())
    return console.file.getvalue()


def test_what_was_measured_is_in_the_table() -> None:
    clock = Clock()
    table = LiveTable({"k": Line("conv", flop_ct=2e9)}, 8, Console(file=io.StringIO()), clock)
    with table:
        assert table.time_left() == "-"
        clock.now = 30.0
        table.measured("k", [math.nan, 0.5, 0.001, 0.0])
        shown = show(table)
    row = next(line for line in shown.splitlines() if line.startswith("conv"))
    assert row.split() == ["conv", "4", "2", "2000.00", "1.000", "ms"]
    assert "4/8 trials, 0:30 so far, 0:30 left" in shown


def test_a_task_without_a_good_candidate_has_no_best() -> None:
    table = LiveTable({"k": Line("conv", 1.0)}, 8, Console(file=io.StringIO()), Clock())
    table.measured("k", [math.nan])
    row = next(line for line in show(table).splitlines() if line.startswith("conv"))
    assert row.split() == ["conv", "1", "1", "-", "-"]


def test_the_weighted_total_waits_for_every_task() -> None:
    lines = {"a": Line("a", 1.0, weight=3), "b": Line("b", 1.0, weight=1)}
    table = LiveTable(lines, 8, Console(file=io.StringIO()), Clock())
    table.measured("a", [0.001])
    assert "total" not in show(table)
    table.measured("b", [0.002])
    assert "weighted total 5.000 ms" in show(table)


def test_off_a_terminal_each_batch_is_one_plain_line() -> None:
    out = io.StringIO()
    clock = Clock()
    with LiveTable({"k": Line("[red]conv", 1e6)}, 4, Console(file=out, width=200), clock) as table:
        clock.now = 5.0
        table.measured("k", [0.001])
    assert out.getvalue() == "1/4 trials, [red]conv: best 1.000 ms, 1.00 GFLOP/s, 0:15 left\n"


def test_on_a_terminal_more_tasks_than_fit_follow_the_current_one() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=12)
    lines = {str(number): Line(f"task{number:02}", 1.0) for number in range(40)}
    with LiveTable(lines, 40, console, Clock()) as table:
        table.started("25")
        shown = show(table)
    assert "task25" in shown and "task00" not in shown and "task39" not in shown
    assert "32 more tasks not shown" in shown
    assert len(shown.splitlines()) <= 12


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(math.inf, "-"), (math.nan, "-"), (2.5, "2.500 s"), (0.0125, "12.500 ms"), (3.21e-5, "32.1 us")],
)
def test_latency(seconds: float, text: str) -> None:
    assert latency(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3723, "1:02:03")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_pipe_is_no_terminal_where_colours_are_forced(monkeypatch, capsys) -> None:
    """As Jupyter forces them in all processes that a notebook starts."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = own_console()
    with LiveTable({"k": Line("conv", 1e6)}, 4, console, Clock()) as table:
        table.measured("k", [0.001])
    assert capsys.readouterr().out.startswith("1/4 trials, conv: best 1.000 ms")


def test_a_terminal_that_cannot_draw_in_place_gets_lines(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    with LiveTable({"k": Line("conv", 1e6)}, 4, console, Clock()) as table:
        table.measured("k", [0.001])
        assert out.getvalue().startswith("1/4 trials, conv: best 1.000 ms")
