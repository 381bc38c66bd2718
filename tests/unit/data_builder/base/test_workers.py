"""Worker processes that crash, hang or fail, and a build that outlives them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from dataset_files import quiet, record_line

from data_builder.base.workers import run_jobs
from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.build.trajectories import Job, write_workload
from data_builder.derive.validate import problems
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import Dataset, group_id


def act(job: str, beat) -> str:
    beat(3, f"log:{job}")
    if job == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if job == "leave":
        os._exit(7)
    if job == "hang":
        time.sleep(600)
    if job == "raise":
        raise ValueError("no good")
    return job.upper()


def test_each_job_ends_and_none_takes_another_along() -> None:
    asked = []

    def again(outcome):
        asked.append(outcome.job)
        return {"crash": "second", "leave": None, "hang": None}[outcome.job]

    jobs = ["a", "crash", "b", "raise", "leave", "hang", "c"]
    outcomes = list(run_jobs(jobs, act, processes=2, again=again, stall_seconds=8))
    done = {outcome.job: outcome.result for outcome in outcomes if outcome.kind == "done"}
    assert done == {"a": "A", "b": "B", "c": "C", "second": "SECOND"}
    died = {outcome.job: outcome for outcome in outcomes if outcome.kind == "died"}
    assert set(died) == set(asked) == {"crash", "leave", "hang"}
    assert died["crash"].why == "worker killed by SIGSEGV" and died["crash"].place == "log:crash"
    assert died["crash"].position == 3
    assert died["leave"].why == "worker ended with exit status 7"
    assert "SIGKILL" in died["hang"].why
    (failed,) = [outcome for outcome in outcomes if outcome.kind == "failed"]
    assert (failed.job, failed.why) == ("raise", "ValueError: no good")


def id_of(key: str) -> str:
    return group_id(key, "llvm", [2, 64, 64, 0, 0, 0, 0, 0])  # as in record_line


def write_or_die(job: Job, beat):
    """Dies of the third record of workload k1, of the third and then the fourth of k2, of all of k3."""
    deadly = {id_of("k1"): {2}, id_of("k2"): {2, 3}, id_of("k3"): {0}}[job.workload_id]

    def beat_or_die(position: int, place: str) -> None:
        beat(position, place)
        always = job.workload_id == id_of("k3")
        if position in deadly and (always or (job.replay and position not in job.skip)):
            os.kill(os.getpid(), signal.SIGKILL)

    return write_workload(job, beat_or_die)


def test_a_build_outlives_the_records_that_kill_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(b"\n".join(record_line(key, 1e-3 * n) for n in range(1, 6) for key in ("k1", "k2")))
    monkeypatch.setattr("data_builder.build.build.write_workload", write_or_die)
    report = quiet()
    manifest = build([str(log)], tmp_path / "ds", BuildOptions(jobs=2), report)
    assert manifest["totals"]["records"] == 10
    died = [text for text in report.problems if "worker killed by SIGKILL" in text]
    assert sum("tried again without this record's states" in text for text in died) == 2
    assert sum("its records are kept without states" in text for text in died) == 1
    assert any(f"{log}:5" in text for text in died)  # the third record of k1
    assert list(problems(tmp_path / "ds")) == []


def test_a_workload_that_cannot_be_written_stops_the_end_not_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(b"\n".join(record_line(key, 1e-3 * n) for n in range(1, 6) for key in ("k1", "k3")))
    monkeypatch.setattr("data_builder.build.build.write_workload", write_or_die)
    with pytest.raises(DatasetError, match="1 of 2 workloads could not be written"):
        build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), quiet())
    with pytest.raises(DatasetError, match="has not finished"):
        Dataset(tmp_path / "ds")
    monkeypatch.setattr("data_builder.build.build.write_workload", write_workload)  # mended
    report = quiet()
    manifest = build([str(log)], tmp_path / "ds", replace(BuildOptions(), jobs=1), report)
    assert "going on with" in report.notes[0]
    assert manifest["totals"]["records"] == 10
    assert list(problems(tmp_path / "ds")) == []
