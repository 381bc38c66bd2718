"""AutoScheduler's candidates built into a parcel, and timed there with the runtime alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

from benchmarks import run
from benchmarks.plan import read
from benchmarks.tune import parcels
from benchmarks.tune.meta import deferred
from data_builder.offline_measure import time_parcel

TARGET = "llvm -keys=cpu -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu -num-cores=16"
TASK = "gpt2/8"


@pytest.mark.slow
def test_runs_proposed_here_and_finished_with_times_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["--tasks", TASK, "--methods", "wmsched-script", "--bundle", "x86-avx512", "--budgets", "4"]
    given += ["--round-size", "4", "--target", TARGET, "--parcel", "parcel", "--out", "proposed.jsonl"]
    assert run.main(given) == 0
    (line,) = read(Path("proposed.jsonl"))
    assert line["deferred"] and len(line["proposed"]) == 4 and "best_seconds" not in line
    listed = time_parcel.rows(Path("parcel") / time_parcel.PROGRAMS)
    assert {row["key"] for row in listed} == {path.stem for path in Path("parcel").rglob("*.so")}
    # the search was for a machine with as many cores as the target names
    assert line["target"].endswith("-num-cores=16")
    command = [sys.executable, time_parcel.__file__, "parcel", "--kind", "ansor", "--again", "2"]
    there = os.environ | {"PYTHONPATH": str(Path(tvm.__file__).parents[1]), "TVM_USE_RUNTIME_LIB": "1"}
    there |= {"TVM_NUM_THREADS": "2"}
    done = subprocess.run(command, env=there, capture_output=True, text=True, timeout=120, check=True)
    assert "0 failed" in done.stdout and "1 tasks timed again" in done.stdout, done.stderr
    assert deferred.main(["proposed.jsonl", "--parcel", "parcel", "--out", "results.jsonl"]) == 0
    found, again = read(Path("results.jsonl"))
    timed = [np.median(times) for times in time_parcel.seconds(Path("parcel")).values()]
    assert found["status"] == "ok" and found["best_seconds"] == min(timed) and found["threads"] == 2
    assert "search" not in found and "search" not in again  # as every line of AutoScheduler's
    (entry,) = again["entries"]
    assert entry["record"] == found["best_record"] and len(entry["seconds"]) > 2
    # the log has the times too
    log = [json.loads(text) for text in Path("results", Path(found["log"]).name).read_text().splitlines()]
    assert len(log) == 4 and min(np.median(record["r"][0]) for record in log) == min(timed)
    # a record that TVM reads, with the times from there
    record, result = tvm.auto_scheduler.measure_record.load_record_from_string(found["best_record"])
    assert record.task.workload_key == found["workload_key"] and int(result.error_no) == 0
    assert np.median([float(x.value) for x in result.costs]) == found["best_seconds"]


def test_a_program_that_cannot_be_built_is_one_that_failed(tmp_path):
    taken = parcels.Parcel(tmp_path)
    told = {"problems": {}}
    assert taken.outcome(TASK, 4, told)["status"] == "error"
    kept = {"key": "k", "record": json.dumps({"r": [[1], 0, 0, 0]})}
    taken.proposed = [{"key": "", "record": "r"}, kept, {"key": "beyond", "record": "r"}]
    assert taken.outcome(TASK, 2, told)["status"] == "ok" and len(taken.proposed) == 2
    (tmp_path / time_parcel.SECONDS).write_text('{"key": "k", "seconds": [2.0, 4.0, 3.0]}\n')
    line = {"task": TASK, "target": TARGET, "status": "ok", "proposed": taken.proposed}
    (run_line,) = deferred.finished([line], tmp_path)
    assert (run_line["failed"], run_line["best_seconds"]) == (1, 3.0)


@pytest.mark.parametrize(("target", "cores"), [(TARGET, 16), ("llvm -mcpu=x86-64-v3", 0)])
def test_the_cores_that_a_target_names(target, cores):
    assert parcels.cores(target) == cores
