"""MetaSchedule databases: read with what is broken, made a dataset."""

from __future__ import annotations

import json
import math
import os
import shutil

import programs as P
import pytest
from collected import PROGRAMS, Told, collect
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from data_builder.build.build import build
from data_builder.build.databases import threads_of
from data_builder.build.plan import BuildOptions
from data_builder.derive.validate import problems
from data_builder.read.databases import (
    RECORDS,
    THREADS,
    WORKLOADS,
    databases,
    parse_line,
)
from wmsched.base.cores import named_threads
from wmsched.base.errors import DatasetError, LogError
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.training.train_ranker import build_groups
from wmsched.metaschedule.workload import program_text, workload_of
from wmsched.schedules.database import cut
from wmsched.schedules.traces import trace_of
from wmsched.toolchain.targets import target_text


def test_a_database_becomes_a_dataset_with_every_prefix(database, tmp_path) -> None:
    folder = tmp_path / "db"
    shutil.copytree(database, folder)
    good = (folder / RECORDS).read_text().splitlines()
    bad = [
        good[0].replace(",[", ",[", 1)[:-30],
        "[99" + good[0][1:],
        "{}",
        "[0,[[[],[]],[nan,0.1],null,[]]]",
        good[1],
        '[0,[[[["Split",["l9",2],[1,0],["l1"]]],[]],[0.5],' + json.dumps(P.CPU) + ",[]]]",
    ]
    (folder / RECORDS).write_text("\n".join([*good, *bad]) + "\n")
    told = Told()
    manifest = build([str(tmp_path)], tmp_path / "ds", BuildOptions(states_per_workload=0, jobs=1), told)
    totals = manifest["totals"]
    assert totals["workloads"] == 3  # the record without a target is of another machine
    assert totals["records"] == 14 and totals["duplicates"] == 1 and totals["replay_failed"] == 1
    assert totals["lines"] == 18 and totals["bad"] == 3
    assert totals["errors_by_kind"]["ok"] == 13
    assert any(f"{RECORDS}:13" in text for text in told.problems)
    assert list(problems(tmp_path / "ds")) == []
    dataset = Dataset(tmp_path / "ds")
    ours = target_text(Target(P.CPU))
    found = {w.desc: w for w in dataset.workloads() if w.target == ours}
    for _, program in PROGRAMS:
        workload = found[program.desc]
        assert workload.key == workload_of(program.module(), ours).key  # as a search knows it
        assert workload.hardware[:2] == (2, 64) and workload.network == "tiny" and workload.stages
        assert dataset.initial(workload.id) == program_text(program.module())
        texts = dataset.states(workload.id)
        for trajectory in dataset.trajectories(workload.id):
            if not trajectory.states:
                continue
            assert len(trajectory.states) == len(trajectory.steps) + 1 == len(trajectory.action_texts) + 1
            schedule = Schedule(program.module())
            Trace.apply_json_to_schedule(trace_of(trajectory.steps), schedule)
            assert texts[trajectory.states[-1]] == program_text(schedule.mod)
            assert len(set(trajectory.states)) > len(trajectory.states) // 2
    groups = build_groups(dataset, state="none")
    assert len({group.rows.shape[1] for group in groups}) == 1
    again = build([str(tmp_path)], tmp_path / "ds", BuildOptions(states_per_workload=0, jobs=1), Told())
    assert again == manifest


def test_excluded_workloads_are_left_out(database, tmp_path) -> None:
    key = workload_of(PROGRAMS[0][1].module(), "").key
    ansors = '["0123", [8, 8]]'
    options = BuildOptions(states_per_workload=1, jobs=1, exclude=frozenset([key, ansors]))
    told = Told()
    manifest = build([str(database)], tmp_path / "ds", options, told)
    assert any("1 keys of AutoScheduler's" in note and "1 others do" in note for note in told.notes)
    assert manifest["totals"]["excluded"] == 6 and manifest["totals"]["workloads"] == 1
    assert Dataset(tmp_path / "ds").workloads()[0].desc == "softmax"


def test_records_of_other_threads_are_not_gone_on_with(tmp_path, monkeypatch) -> None:
    out = tmp_path / "db"
    collect(out, 2)
    ran = json.loads((out / THREADS).read_text())
    assert ran == threads_of(out) == named_threads(os.environ)
    monkeypatch.setenv("TVM_NUM_THREADS", str(ran + 6))
    before = (out / RECORDS).read_bytes()
    with pytest.raises(LogError, match=rf"ran on {ran} threads, this run's would on {ran + 6}"):
        collect(out, 4)
    assert (out / RECORDS).read_bytes() == before
    build([str(out)], tmp_path / "here", BuildOptions(states_per_workload=1, jobs=1), Told())
    (out / THREADS).write_text(str(ran + 6))
    build([str(out)], tmp_path / "there", BuildOptions(states_per_workload=1, jobs=1), Told())
    here, there = (Dataset(tmp_path / name).workloads() for name in ("here", "there"))
    assert {w.threads for w in there} == {ran + 6} and not {w.id for w in here} & {w.id for w in there}


def test_odd_lines_and_modules_are_bad_ones_and_the_rest_is_built(database, tmp_path) -> None:
    import tvm
    from tvm.s_tir.meta_schedule.database import Workload

    folder = tmp_path / "db"
    shutil.copytree(database, folder)
    empty = [str(part) for part in Workload(tvm.IRModule()).as_json()]
    with open(folder / WORKLOADS, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(empty) + "\n")
    good = (folder / RECORDS).read_text().splitlines()
    deep, cpu = "[" * 300 + "]" * 300, json.dumps(P.CPU)
    odd = [
        "[2" + good[0].removeprefix("[0"),  # of the module without a function
        f'[0,[[[["Annotate",["b0",{deep}],["x"],[]]],[]],[0.5],{cpu},[]]]',
        f'[0,[[[],[]],[0.5],{{"kind":{deep}}},[]]]',
        f"[{deep},[[[],[]],[0.5],{cpu},[]]]",
    ]
    (folder / RECORDS).write_text("\n".join([*odd, *good]) + "\n")
    told = Told()
    options = BuildOptions(states_per_workload=1, jobs=1)
    totals = build([str(folder)], tmp_path / "ds", options, told)["totals"]
    assert (totals["lines"], totals["records"], totals["bad"], totals["workloads"]) == (16, 12, 4, 2)
    assert any("1: its module is no program to tune: " in text for text in told.problems), told.problems
    assert sum("nested too deeply" in text for text in told.problems) == 3
    assert list(problems(tmp_path / "ds")) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense", "not JSON"),
        (b"[]", "no tuning record"),
        (b"[-1,[[[],[]],[1],null,null]]", "no line of"),
        (b"[0,[[[],[]],[1],7,null]]", "target"),
        (b'[0,[[[],[]],["x"],null,null]]', "run times"),
        (b"[0,[[[],[[3,1]]],[1],null,null]]", "decision"),
    ],
)
def test_lines_that_are_no_records_say_why(line, message) -> None:
    with pytest.raises(LogError, match=f"db:1: .*{message}"):
        parse_line(line, place="db:1")


def test_times_that_are_none() -> None:
    for times in (b"null", b"[]", b"[1e10]", b"[nan]", b"[0.5,inf]", b"[-inf]"):
        measurement = parse_line(b"[0,[[[],[]]," + times + b",null,null]]").measurement
        assert not measurement.ok and math.isnan(measurement.seconds)
    assert parse_line(b"[0,[[[],[]],[0.5,1.5],null,null]]").measurement.seconds == 1.0


def test_mending_cuts_only_what_is_unfinished(tmp_path) -> None:
    path = tmp_path / "x"
    assert cut(path) == 0
    for data, kept in ((b"", b""), (b"a\nb\n", b"a\nb\n"), (b"a\nb", b"a\n"), (b"z" * 200_000, b"")):
        path.write_bytes(data)
        assert cut(path) == len(data) - len(kept) and path.read_bytes() == kept


def test_databases_are_found_and_not_mixed(database, tmp_path) -> None:
    assert databases([database]) == databases([database / RECORDS]) == [database]
    assert databases([database.parent]) == [database] and databases([tmp_path]) == []
    log = tmp_path / "ansor.json"
    log.write_text("")
    with pytest.raises(DatasetError, match="one scheduler"):
        databases([database, log])
    lost = tmp_path / "lost"
    lost.mkdir()
    (lost / RECORDS).write_text("")
    with pytest.raises(DatasetError, match=WORKLOADS):
        databases([lost])
