"""The noise check's marks: which checks are a log's, and which records they say something of."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dataset_files import quiet, record_line

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.build.trajectories import Job, write_workload
from data_builder.read.noise_checks import FILE, Checks, beside, carry, checks_of
from data_builder.read.spool import scan, write_sources
from wmsched.learn.data.dataset import Dataset

QUIET, SLOW = 1e-3, 1.0
#: The last check is slow; `record_line` gives its records the time 1.
CHECKS = [(0.1, QUIET), (0.2, QUIET), (0.3, QUIET), (1.5, SLOW)]


def write_checks(folder: Path, checks: list[tuple[float, float]] = CHECKS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    path.write_text("".join(json.dumps({"t": t, "seconds": seconds}) + "\n" for t, seconds in checks))
    return path


def marks(root: Path) -> list[bool | None]:
    dataset = Dataset(root)
    return [mark for name in dataset.workload_ids for mark in dataset.disturbed(name)]


def test_checks_across_a_break_say_nothing() -> None:
    times, seconds = [0.0, 10.0, 20.0, 100.0], [QUIET, QUIET, SLOW, QUIET]
    assert [Checks(times, seconds).disturbed(t) for t in (15, 50, 120)] == [True, True, False]
    parted = Checks(times, seconds, breaks=[40.5])
    assert [parted.disturbed(t) for t in (15, 30, 50, 120)] == [True, True, False, False]
    assert Checks(times[:3], seconds[:3], breaks=[40.5]).disturbed(50) is None
    assert parted.usual == QUIET


def test_carried_checks_mark_the_old_records_and_not_those_timed_anew(tmp_path: Path) -> None:
    old = write_checks(tmp_path / "old", [(1000.0, QUIET), (1010.0, QUIET), (1020.0, SLOW)])
    old.write_text(old.read_text() + '{"t": 10')  # of a kill
    now = 1030.9
    assert Checks.read(old).disturbed(1030) is True
    carry(old, tmp_path / "new", now=now)
    carried = Checks.read(tmp_path / "new" / FILE)
    assert [carried.disturbed(t) for t in (1005, 1015, 1025)] == [False, True, True]
    assert [carried.disturbed(t) for t in (1030, 1031, 1500)] == [None] * 3  # TVM cuts 1030.9 to 1030


def test_a_stopped_run_that_goes_on_carries_each_check_once(tmp_path: Path) -> None:
    old = write_checks(tmp_path / "old", [(1000.0, QUIET), (1010.0, SLOW)])
    carry(old, tmp_path / "new", now=1100.0)
    new = tmp_path / "new" / FILE
    new.write_text(new.read_text() + json.dumps({"t": 1200.0, "seconds": QUIET}) + "\n")  # a check of its own
    carry(old, tmp_path / "new", now=1300.0)
    held = [json.loads(line)["t"] for line in new.read_text().splitlines()]
    assert sorted(held) == [1000.0, 1010.0, 1099.5, 1200.0, 1299.5]
    assert [Checks.read(new).disturbed(t) for t in (1020, 1150, 1301)] == [True, False, None]


def test_the_checks_of_a_log_lie_in_its_folder_or_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_checks(tmp_path / "run!1")
    logs = tmp_path / "run!1" / "measure_records"
    logs.mkdir()
    (logs / "a.json").touch()
    (logs / "b.tar").touch()
    for name in ("a.json", "b.tar", "b.tar!inner/x.json", "b.tar!odd!.json"):
        assert beside(f"{logs}/{name}") == path
        monkeypatch.chdir(logs)
        assert beside(name) == path
        monkeypatch.chdir(tmp_path)
        assert beside(name, base=logs) == path
    assert checks_of("/nonexistent/a!b.json") is None
    monkeypatch.chdir(logs)
    assert beside("-") is None and beside("-!x.json") is None  # nobody knows where it comes from


def test_a_build_in_the_folder_of_its_logs_marks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checks(tmp_path / "logs")
    folder = tmp_path / "logs" / "measure_records"
    folder.mkdir()
    (folder / "a.json").write_bytes(record_line("k1", 1e-3))
    data = record_line("k2", 1e-3)
    with tarfile.open(folder / "wow!.tar", "w") as archive:
        info = tarfile.TarInfo("b.json")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    monkeypatch.chdir(folder)
    build(["a.json", "wow!.tar"], tmp_path / "ds", BuildOptions(jobs=1), quiet())
    assert marks(tmp_path / "ds") == [True, True]


def test_a_worker_in_another_folder_finds_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checks(tmp_path / "logs")
    monkeypatch.chdir(tmp_path / "logs")
    Path("a.json").write_bytes(record_line("k1", 1e-3))
    scratch = tmp_path / "scratch"
    (name,) = scan(("a.json",), scratch, on_problem=print)["workloads"]
    write_sources(scratch, ["a.json"])
    base = Path.cwd()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # as a cluster's workers are
    job = Job(
        workload_id=name, count=1, row=None, out=tmp_path / "ds", scratch=scratch, states_per_workload=1,
        base=base,
    )  # fmt: skip
    write_workload(job, lambda position, place: None)
    (path,) = (tmp_path / "ds" / "trajectories").glob("*.parquet")
    assert pq.read_table(path, partitioning=None)["disturbed"].to_pylist() == [True]
