"""A log that was cut off, spoilt or never there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wmsched.base.errors import LogError
from wmsched.schedules import database
from wmsched.schedules.log_file import GrowingLog, mend, rescale, tally

KEY, TARGET = '["mm", 64]', "llvm -keys=cpu"


def line(cost: float, *, error: int = 0, key: str = KEY, factor: int = 4) -> bytes:
    task = [key, TARGET, [2, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    row = {"i": [task, [[], [["SP", 2, 0, 64, [factor], 1]]]], "r": [[cost], error, 0.1, 0], "v": "v0.6"}
    return json.dumps(row).encode() + b"\n"


def test_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    told = tally(tmp_path / "none.json")
    assert told.total == 0 and told.best == {} and told.bad == []


def test_trials_and_best_are_counted_by_task(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(
        b"# comment\n\n" + line(0.5) + line(0.25) + line(1e10, error=2) + line(0.0) + line(3.0, key='["b"]')
    )
    told = tally(log)
    assert told.trials == {(KEY, TARGET): 4, ('["b"]', TARGET): 1}
    assert told.best[KEY, TARGET].measurement.seconds == 0.25  # neither a failure nor a zero is a best time


def test_a_task_whose_every_candidate_failed_has_no_best(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(line(1e10, error=4))
    assert tally(log).trials == {(KEY, TARGET): 1} and tally(log).best == {}


def test_mending_moves_what_is_no_record_aside(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    cut = line(0.1)[:40]
    log.write_bytes(line(0.5) + b"not json\n" + line(0.25) + cut)
    moved = mend(log)
    assert [reason.split(": ")[0] for reason in moved] == [f"{log}:2", f"{log}:4"]
    assert log.read_bytes() == line(0.5) + line(0.25)
    assert (tmp_path / "log.json.bad").read_bytes() == b"not json\n" + cut + b"\n"
    assert mend(log) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.json", "log.json.bad"]


def test_a_whole_last_line_gets_its_line_end(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(line(0.5) + line(0.25)[:-1])
    assert mend(log) == []
    assert log.read_bytes() == line(0.5) + line(0.25)  # or the next record would be glued onto it


@pytest.mark.parametrize("cut", range(1, 150, 17))
def test_wherever_a_write_was_cut_the_rest_survives(tmp_path: Path, cut: int) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(line(0.5) + line(0.25)[:cut])
    mend(log)
    with log.open("ab") as more:
        more.write(line(0.125))
    told = tally(log)
    assert told.bad == [] and told.total == 2
    assert told.best[KEY, TARGET].measurement.seconds == 0.125


def test_empty_lines_go_for_tvm_stops_at_them(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(b"\n" + line(0.5) + b"\t\n# a comment\n \n" + line(0.25) + b"\r\n")
    assert mend(log) == []
    assert log.read_bytes() == line(0.5) + b"# a comment\n \n" + line(0.25)
    assert [path.name for path in tmp_path.iterdir()] == ["log.json"]


def test_a_link_leads_to_the_mended_log(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    log, link = tmp_path / "there" / "log.json", tmp_path / "link.json"
    log.write_bytes(line(0.5) + b"not json\n")
    link.symlink_to(log)
    assert len(mend(link)) == 1
    assert link.is_symlink() and log.read_bytes() == line(0.5)


def test_a_log_that_does_not_grow_is_told_of(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(line(0.5))
    growing = GrowingLog(log)
    growing.check(0)  # nothing was to be written
    with log.open("ab") as more:
        more.write(line(0.25) * 2)
    growing.check(2)
    growing.check(2)
    with pytest.raises(LogError, match=r"the last 3 records could not be written: make room .*--resume"):
        growing.check(5)
    with log.open("ab") as more:
        more.write(line(0.125)[:30])  # the disk was full in the midst of it
    with pytest.raises(LogError, match="could not be written"):
        growing.check(5)
    log.unlink()
    with pytest.raises(LogError, match="the log went away"):
        growing.check(5)


def test_costs_are_corrected_and_other_lines_stay(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(b"# comment\n" + line(0.5) + line(0.25, factor=8) + b"half a li\n" + line(1e10, error=2))
    growing = GrowingLog(log)
    assert (
        rescale(log, lambda record: 0.1 if record.steps[0][4] == [4] and record.measurement.ok else 1.0) == 1
    )
    lines = log.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[1])["r"] == [[0.05], 0, 0.1, 0]
    assert lines[2] == line(0.25, factor=8) and lines[3] == b"half a li\n" and len(lines) == 5
    growing.rewritten()
    with log.open("ab") as more:
        more.write(line(0.25))
    growing.check(1)
    assert rescale(log, lambda record: 1.0) == 0


def test_a_database_s_run_times_are_corrected_and_failures_and_other_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / database.RECORDS
    lines = [
        b"[0,[[],[0.002,0.004],{},[]]]\n",
        b"[0, [[], [1e10], {}, []]]\n",
        b"[1, [[], [3e-05], {}, []]]\n",
    ]
    path.write_bytes(b"".join(lines))
    database.rescale(path, {0: 0.5, 1: 0.5})
    rows = [json.loads(one) for one in path.read_bytes().splitlines()]
    assert [row[1][1] for row in rows] == [[0.001, 0.002], [1e10], [3e-05]]
    assert path.read_bytes().endswith(lines[2])
    with pytest.raises(LogError, match="there are 3 records"):
        database.rescale(path, {3: 0.5})
    path.write_bytes(b"[0]\n")
    with pytest.raises(LogError, match="no record"):
        database.rescale(path, {0: 0.5})
