"""Builds that leave records out, and workers that die of them: what goes, what stays, what is counted."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from dataset_files import quiet, record_line

from data_builder.base.workers import Outcome
from data_builder.build import trajectories
from data_builder.build.build import build
from data_builder.build.plan import BuildOptions, _again
from data_builder.build.trajectories import Job, write_workload
from data_builder.derive.validate import problems
from data_builder.read.spool import scan, write_sources
from data_builder.read.workloads import write_rows
from wmsched.learn.data.dataset import states_path, trajectories_path


def slow(dag, record) -> bool:
    """Stands for the look at what TVM lowers: programs slower than this were compiled wrong."""
    return record.measurement.seconds > 2.5e-3


def job_of(tmp_path: Path, *seconds: float) -> Job:
    """A workload's job after two workers died: without replay."""
    log, scratch = tmp_path / "log.json", tmp_path / "scratch"
    log.write_bytes(b"\n".join(record_line("k1", each) for each in seconds))
    (name,) = scan((str(log),), scratch, on_problem=print)["workloads"]
    write_sources(scratch, [str(log)])
    return Job(
        workload_id=name, count=len(seconds), row={"workload_key": "k1", "tensors": []},
        out=tmp_path / "ds", scratch=scratch, states_per_workload=12, replay=False, drop_aliased=True,
    )  # fmt: skip


def written(job: Job) -> tuple[dict, str]:
    """The done file of a job, and its problems."""
    done = write_workload(job, lambda position, place: None)
    return done, (job.scratch / "problems" / f"{job.workload_id}.txt").read_text()


def test_without_replay_they_are_still_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "dag_of", lambda row: "dag")
    monkeypatch.setattr(trajectories, "may_be_miscompiled", slow)
    job = replace(job_of(tmp_path, 1e-3, 2e-3, 3e-3), skip=(1,))
    done, told = written(job)
    log = str(tmp_path / "log.json")
    assert done["sources"] == {log: {"records": 1, "bad": 2, "kind:ok": 1}}
    assert done["workload"]["workload_key"] == "k1"
    assert f"{log}:2: a worker process died of it" in told
    assert f"{log}:3: TVM may have compiled it wrong" in told
    assert trajectories_path(job.out, job.workload_id).is_file()


def test_a_workload_without_a_record_has_no_row_and_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectories, "dag_of", lambda row: "dag")
    monkeypatch.setattr(trajectories, "may_be_miscompiled", slow)
    job = job_of(tmp_path, 3e-3, 4e-3)
    done, _ = written(job)
    assert done["workload"] is None and done["states"] == 0
    assert done["sources"] == {str(tmp_path / "log.json"): {"bad": 2}}
    assert not trajectories_path(job.out, job.workload_id).exists()
    assert not states_path(job.out, job.workload_id).exists()


def test_what_kills_again_is_left_out_without_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "dag_of", lambda row: pytest.fail("TVM was asked"))
    done, told = written(replace(job_of(tmp_path, 1e-3, 2e-3), lower=False))
    assert done["workload"] is None
    assert told.count("worker processes died of its workload") == 2


def test_each_death_asks_less_of_the_next_worker(tmp_path: Path) -> None:
    again = _again(quiet())
    begun = replace(job_of(tmp_path, 1e-3), replay=True)

    def after(job: Job, position: int) -> Job | None:
        return again(Outcome("died", job, why="killed", position=position, place="log"))

    first = after(begun, 3)
    assert first == replace(begun, skip=(3,))
    second = after(first, 5)
    assert second == replace(begun, skip=(3, 5), replay=False) and second.looks
    third = after(second, 7)
    assert third == replace(second, lower=False) and not third.looks
    assert after(third, 8) is None
    assert after(replace(second, drop_aliased=False), 7) is None
    assert after(replace(second, row=None), 7) is None
    assert after(begun, -1) == replace(begun, again=True)  # none of its records is at fault
    assert after(replace(begun, again=True), -1) == replace(begun, again=True, replay=False)


def dies_of_replay(job: Job, beat):
    """A worker that dies at the first record of each workload, as long as there is replay."""
    trajectories.dag_of = lambda row: "dag"
    trajectories.may_be_miscompiled = slow

    def beat_or_die(position: int, place: str) -> None:
        beat(position, place)
        if job.replay:
            os.kill(os.getpid(), signal.SIGKILL)

    return write_workload(job, beat_or_die)


def test_a_build_goes_on_leaving_out_after_its_workers_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, rows = tmp_path / "log.json", tmp_path / "rows.json"
    lines = [record_line("k1", 1e-3 * n) for n in (1, 2, 3)]
    log.write_bytes(b"\n".join([*lines, record_line("k2", 4e-3)]))
    write_rows(rows, [{"workload_key": key, "tensors": []} for key in ("k1", "k2")])
    monkeypatch.setattr("data_builder.build.build.write_workload", dies_of_replay)
    options = BuildOptions(workloads=rows, jobs=1, drop_aliased=True)
    totals = build([str(log)], tmp_path / "ds", options, quiet())["totals"]
    assert (totals["lines"], totals["records"], totals["bad"], totals["workloads"]) == (4, 1, 3, 1)
    assert list(problems(tmp_path / "ds")) == []


def test_a_workload_of_bad_lines_alone_is_counted_and_not_listed(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    nowhere = [["AN", 0, 300, 3]]  # a loop that no program has
    log.write_bytes(record_line("k1", 1e-3) + b"\n" + record_line("k2", 1e-3, steps=nowhere))
    totals = build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), quiet())["totals"]
    assert (totals["lines"], totals["records"], totals["bad"], totals["workloads"]) == (2, 1, 1, 1)
    assert list(problems(tmp_path / "ds")) == []
