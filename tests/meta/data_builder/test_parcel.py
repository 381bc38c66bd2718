"""Programs built here and timed by a process that has TVM's runtime alone, and what is made of the times."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from tvm.s_tir import meta_schedule as ms

from benchmarks import run as bench
from benchmarks.plan import read
from benchmarks.tune.meta import deferred
from data_builder.build.databases import NAMES
from data_builder.metaschedule.programs import training_programs
from data_builder.offline_measure import builder, collect, time_parcel
from data_builder.read.databases import RECORDS, read_modules, read_records
from wmsched.base.errors import DatasetError

TARGET = '{"kind": "llvm", "num-cores": 2}'
TASK = "gpt2/8"  # the mean of a layer norm: small


def time_there(folder, *arguments):
    """As on the other machine: the script alone, in a process of its own."""
    command = [sys.executable, time_parcel.__file__, str(folder), "--kind", "cpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tvm.target import Target

    folder = tmp_path_factory.mktemp("parcel")
    programs = [(34, training_programs()[34]), (101, training_programs()[101])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "usable_cores", lambda: 1)  # another process would import PyTorch and TVM, too
        assert collect.build(folder, Target(json.loads(TARGET)), programs, 3, note=lambda text: None) == 6
        # what is there is neither sampled nor built again
        assert collect.build(folder, Target(json.loads(TARGET)), programs, 3, note=lambda text: None) == 0
    return folder


def test_a_database_of_what_another_process_timed(folder, tmp_path) -> None:
    with pytest.raises(DatasetError, match="no seconds"):
        collect.join(folder, tmp_path / "early", training_programs())
    # one program is damaged on its way: it alone fails, and a program after it is timed by a new worker
    rows = time_parcel.rows(folder / time_parcel.PROGRAMS)
    damaged = folder / "programs" / f"{rows[1]['key']}.so"
    kept = damaged.read_bytes()
    damaged.write_bytes(kept[:100])
    try:
        assert "6 programs timed, 1 failed" in time_there(folder)
    finally:
        damaged.write_bytes(kept)
    assert "0 programs timed" in time_there(folder)
    counts = collect.join(folder, tmp_path / "db", training_programs())
    assert counts == {"records": 6, "failed": 1, "untimed": 0}
    with pytest.raises(DatasetError, match="already"):
        collect.join(folder, tmp_path / "db", training_programs())
    records = [record for _, record, problem in read_records(tmp_path / "db") if not problem]
    seconds = [record.measurement.seconds for record in records]
    assert sum(np.isfinite(s) and 0 < s < 1 for s in seconds) == 5
    modules = read_modules(tmp_path / "db")
    assert len(modules) == 2
    names = json.loads((tmp_path / "db" / NAMES).read_text())
    assert [name[1] for name in names.values()] == [
        training_programs()[34].desc,
        training_programs()[101].desc,
    ]
    # and TVM reads it
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "db"))
    assert len(database.get_all_tuning_records()) == 6
    assert (tmp_path / "db" / RECORDS).is_file()


@pytest.mark.slow
def test_runs_proposed_here_and_finished_with_times_from_there(tmp_path) -> None:
    folder, proposed, out = tmp_path / "parcel", tmp_path / "proposed.jsonl", tmp_path / "results.jsonl"
    arguments = ["--tasks", TASK, "--methods", "meta-random", "--budgets", "4", "--target", TARGET]
    arguments += ["--parcel", str(folder), "--out", str(proposed)]
    assert bench.main(arguments) == 0
    (line,) = read(proposed)
    assert line["deferred"] and len(line["proposed"]) == 4 and "best_seconds" not in line
    finish = [str(proposed), "--parcel", str(folder), "--out", str(out)]
    # without times nothing is a result
    assert deferred.main(finish) == 0
    assert [found["status"] for found in read(out)] == ["error"]
    out.unlink()
    assert "1 tasks timed again" in time_there(folder, "--again", "2")
    assert deferred.main(finish) == 0
    done, again = read(out)
    timed = [row["seconds"] for row in time_parcel.rows(folder / time_parcel.SECONDS)]
    assert done["status"] == "ok" and done["trials"] == 4 and done["failed"] == 0
    assert done["best_seconds"] == min(np.median(seconds) for seconds in timed)
    assert done["device"]["kind"] == "cpu" and "proposed" not in done
    (entry,) = again["entries"]
    assert entry["record"] == done["best_record"] and len(entry["seconds"]) == 2
    assert entry["difference"] < 1e-5
    # a program that computes something else, or leaves places out, is no result
    (row,) = time_parcel.rows(folder / time_parcel.AGAIN)
    (program,) = row["programs"].values()
    wrong = [*program["outputs"][:7], program["outputs"][7] + 0.1, *program["outputs"][8:]]
    for outputs in (wrong, [*program["outputs"][:-1], 1.0]):
        row["programs"] = {key: program | {"outputs": outputs} for key in row["programs"]}
        (folder / time_parcel.AGAIN).write_text(json.dumps(row) + "\n")
        (out.parent / "wrong.jsonl").unlink(missing_ok=True)
        assert deferred.main([*finish[:-1], str(out.parent / "wrong.jsonl")]) == 0
        (*_, line) = read(out.parent / "wrong.jsonl")
        assert "computes something else" in line["entries"][0]["error"]
    # the record is one of TVM's: a schedule that computes the mean
    from benchmarks.tune.meta import workloads

    module = workloads.module("layernorm-mean")
    record = ms.database.TuningRecord.from_json(json.loads(entry["record"]), ms.database.Workload(module))
    assert record.as_measure_candidate().sch.mod is not None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--methods", "meta-random", "--budgets", "8", "--round-size", "4"], "rounds of 4 learns"),
        (["--methods", "ansor", "--budgets", "4"], "MetaSchedule's methods and AutoScheduler's scripts"),
    ],
)
def test_what_cannot_be_timed_later_is_refused(arguments, why, tmp_path, capsys) -> None:
    common = [
        "--tasks",
        TASK,
        "--target",
        TARGET,
        "--parcel",
        str(tmp_path / "p"),
        "--out",
        str(tmp_path / "o"),
    ]
    assert bench.main([*arguments, *common]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
