"""Builds that are killed, or whose disk is full: nothing is lost, and the same command goes on."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from build_logs import content, make_logs
from dataset_files import quiet
from killing import killed, timed

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.derive.validate import problems

COMMAND = [sys.executable, "-m", "data_builder.cli.main", "build"]


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_build_killed_at_random_moments_equals_an_undisturbed_one(kills: int, tmp_path: Path) -> None:
    logs = make_logs(tmp_path, records=60 if kills < 10 else 2000)
    seconds = timed([*COMMAND, str(logs), "--out", str(tmp_path / "whole")])
    wanted = content(tmp_path / "whole")
    out = tmp_path / "killed"

    def ended() -> None:
        assert content(out) == wanted
        shutil.rmtree(out)

    command = [*COMMAND, str(logs), "--out", str(out)]
    finished = killed(command, kills=kills, seconds=seconds, seed=kills, ended=ended)
    last = subprocess.run(command, capture_output=True, text=True, check=False)
    assert last.returncode == 0, last.stderr
    print(
        f"{kills} kills, {finished} builds that ended between them; an undisturbed one took {seconds:.1f} s"
    )
    assert content(out) == wanted
    assert list(problems(out)) == []


def small_files() -> None:
    """As a full disk: a write beyond so much fails. For `preexec_fn`."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12 << 10, 12 << 10))


def test_a_full_disk_is_an_error_and_the_same_command_goes_on(tmp_path: Path) -> None:
    logs = make_logs(tmp_path, workloads=2, records=4000)
    out = tmp_path / "ds"

    full = subprocess.run(
        [*COMMAND, str(logs), "--out", str(out)],
        capture_output=True, text=True, check=False, preexec_fn=small_files,
    )  # fmt: skip
    assert full.returncode == 1 and "Traceback" not in full.stderr, full.stderr
    assert "File too large" in full.stderr
    assert not (out / "manifest.json").exists()
    again = subprocess.run([*COMMAND, str(logs), "--out", str(out)], capture_output=True, check=False)
    assert again.returncode == 0
    assert list(problems(out)) == []
    assert not list(out.rglob("*.partial"))


@pytest.mark.parametrize("where", ["a file", "no permission"])
def test_an_output_that_cannot_be_written_is_named(where: str, tmp_path: Path) -> None:
    logs = make_logs(tmp_path, workloads=1, records=4)
    out = tmp_path / "taken" / "ds"
    if where == "a file":
        (tmp_path / "taken").touch()
    else:
        if os.geteuid() == 0:
            out = Path("/proc/ds")  # root may write anywhere but here
        else:
            (tmp_path / "taken").mkdir(mode=0o500)
    run = subprocess.run(
        [*COMMAND, str(logs), "--out", str(out)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1 and "Traceback" not in run.stderr
    assert f"{out} cannot be written" in run.stderr and "choose another --out" in run.stderr


def test_a_full_disk_stops_a_derived_dataset_and_the_same_command_goes_on(tmp_path: Path) -> None:
    logs = make_logs(tmp_path, workloads=2, records=2000)
    subprocess.run([*COMMAND, str(logs), "--out", str(tmp_path / "ds")], check=True, capture_output=True)
    command = [sys.executable, "-m", "data_builder.cli.main", "dedupe", str(tmp_path / "ds")]
    command += ["--out", str(tmp_path / "one")]
    full = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=small_files)
    assert full.returncode == 1 and "Traceback" not in full.stderr, full.stderr
    assert "File too large" in full.stderr and "run the same command again" in full.stderr
    assert not (tmp_path / "one" / "manifest.json").exists()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert list(problems(tmp_path / "one")) == []
    left = {path.name for path in (tmp_path / "one").iterdir()}
    assert left == {"manifest.json", "problems.txt", "states", "trajectories", "workloads.parquet"}


def test_a_kill_after_the_manifest_leaves_nothing_behind_for_good(tmp_path: Path) -> None:
    log = make_logs(tmp_path, workloads=1, records=4)
    build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), quiet())
    wanted = content(tmp_path / "ds")
    (tmp_path / "ds" / ".build" / "spool").mkdir(parents=True)  # its removal was cut short
    report = quiet()
    build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), report)
    assert "complete already" in report.notes[-1]
    assert not (tmp_path / "ds" / ".build").exists() and content(tmp_path / "ds") == wanted
