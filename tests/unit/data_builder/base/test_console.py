"""What collecting and building show while they run."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from dataset_files import write_dataset
from rich.console import Console

from data_builder.base import console
from data_builder.base.console import SHOWN, CollectReport, ConsoleReport, show_totals
from data_builder.cli.stats_table import show_stats
from data_builder.derive.stats import workload_stats
from wmsched.learn.data.dataset import Dataset


def shown(report: ConsoleReport) -> str:
    """The progress bar as it is drawn now, on a wide terminal."""
    terminal = Console(file=io.StringIO(), width=200, force_terminal=False)
    terminal.print(report.progress.get_renderable())
    return terminal.file.getvalue()


def test_the_live_view_has_rate_errors_by_kind_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    report = CollectReport()
    report.progress.get_time = lambda: now[0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    report.start("measuring", total=40, done=10)
    for kind in ("ok", "ok", "build_timeout", "ok", "runtime_device", "build_timeout"):
        now[0] += 2.0
        report.step(kind)
    line = shown(report)
    assert "16/40" in line and "0.50/s" in line  # 6 records in 12 seconds
    assert "failed: build_timeout 2, runtime_device 1" in line
    assert "0:00:12" in line and "0:00:48" in line  # 24 are left, two seconds each


def test_of_very_many_bad_lines_the_first_are_shown_as_they_are() -> None:
    report = ConsoleReport()
    report.console = Console(file=io.StringIO(), width=200)
    for number in range(SHOWN + 100):
        report.problem(f"log:{number}: [bold]not markup[/bold] :bug:")
    said = report.console.file.getvalue().splitlines()
    assert len(said) == SHOWN + 1 and "problems.txt" in said[-1]
    assert said[0] == "log:0: [bold]not markup[/bold] :bug:"


def test_totals_show_the_folder_as_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    totals = {"lines": 3, "bad": 1, "duplicates": 0, "errors_by_kind": {"ok": 2}}
    show_totals({"totals": totals}, Path("[bold]a[/x]:bug:"))
    said = capsys.readouterr().out
    assert "[bold]a[/x]:bug:\n" in said.replace(" ", "")  # the title
    assert "[bold]a[/x]:bug:/problems.txt" in said


def test_stats_show_labels_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    write_dataset(tmp_path)
    (row,) = workload_stats(Dataset(tmp_path))
    show_stats([replace(row, network="[red]net[/x]", desc="add:bug:[b]", errors={"[/odd]": 1})])
    said = capsys.readouterr().out
    assert "[red]net[/x]" in said and "add:bug:[b]" in said and "failed, [/odd]: 1" in said
