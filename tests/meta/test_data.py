"""MetaSchedule databases: collected, resumed after a kill, read with what is broken, made a dataset."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import programs as P
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.schedule import Trace
from tvm.target import Target
from typer.testing import CliRunner

from data_builder.build.build import build
from data_builder.build.databases import threads_of
from data_builder.build.plan import BuildOptions
from data_builder.cli.main import app
from data_builder.collect.collect import CollectOptions
from data_builder.collect.measure import MeasureOptions
from data_builder.derive.validate import problems
from data_builder.metaschedule.collect import collect_traces
from data_builder.metaschedule.measure import MetaMeasurer
from data_builder.metaschedule.programs import RECIPES, Program, read_programs, select, training_programs
from data_builder.read.databases import (
    RECORDS,
    THREADS,
    WORKLOADS,
    databases,
    parse_line,
    read_records,
)
from wmsched.base.cores import named_threads
from wmsched.base.errors import DatasetError, EnvironmentProblem, LogError, UnknownName
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.training.train_ranker import build_groups
from wmsched.measure.malloc_env import MALLOC_ENVIRONMENT
from wmsched.metaschedule.measure import buffers
from wmsched.metaschedule.measure import measurer as meta_measure
from wmsched.metaschedule.workload import program_text, workload_of
from wmsched.schedules.database import cut
from wmsched.schedules.traces import trace_of
from wmsched.toolchain.targets import target_text
from wmsched.zoo import rows as benchmark_rows

TARGET = json.dumps(P.CPU)
PROGRAMS = [
    (0, Program("tiny", "dense", ("dense", (16, 24, 32)))),
    (1, Program("tiny", "softmax", ("softmax", (16, 32)))),
]


class Told:
    def __init__(self) -> None:
        self.notes, self.problems, self.steps = [], [], 0

    def note(self, text):
        self.notes.append(text)

    def problem(self, text):
        self.problems.append(text)

    def start(self, what, total, done):
        self.started = (what, total, done)

    def step(self, kind="ok"):
        self.steps += 1


def collect(out, trials, *, told=None, faulty=False, cost_model="none"):
    measurer = MetaMeasurer(
        MeasureOptions(), Target(P.CPU), builder=P.NoBuilder(), runner=P.NoRunner(faulty=faulty)
    )
    options = CollectOptions(trials=trials, batch=3, target=TARGET, cost_model=cost_model, mix=(2, 1))
    return collect_traces(PROGRAMS, out, options, told or Told(), measurer=measurer)


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Path:
    """Six records of each of two programs, collected in two runs with a kill between."""
    out = tmp_path_factory.mktemp("db") / "records"
    out.mkdir()
    first = collect(out, 4)
    assert first == {"tasks": 2, "records": 8, "measured": 8, "failed": 0, "unfinished": 0}
    path = out / RECORDS
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])  # killed while it wrote the last record
    told = Told()
    again = collect(out, 6, told=told)
    assert again["records"] == 12 and again["measured"] == 5
    assert any("never finished" in note for note in told.notes)
    assert path.read_bytes().startswith(whole[: whole[:-40].rfind(b"\n") + 1])  # nothing done was lost
    return out


def test_collected_records_are_different_and_tvm_reads_them(database) -> None:
    read = ms.database.JSONDatabase(work_dir=str(database))
    assert len(read) == 12
    records = [record for _, record, problem in read_records(database) if not problem]
    assert len({json.dumps([r.workload, r.steps]) for r in records}) == 12
    assert all(record.measurement.ok for record in records)
    for _, program in PROGRAMS:
        found = read.query_tuning_record(program.module(), Target(P.CPU), "main")
        assert found is not None and float(found.run_secs[0]) > 0
        assert "T.parallel" in read.query_schedule(program.module(), Target(P.CPU), "main").mod.script()
    told = Told()
    assert collect(database, 6, told=told)["measured"] == 0 and told.started[1:] == (12, 12)


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


def test_a_database_goes_on_with_its_target_only(database, tmp_path) -> None:
    folder = tmp_path / "db"
    shutil.copytree(database, folder)
    before = {name: (folder / name).read_bytes() for name in (RECORDS, WORKLOADS)}
    other = {**P.CPU, "num-cores": 77}
    measurer = MetaMeasurer(MeasureOptions(), Target(other), builder=P.NoBuilder(), runner=P.NoRunner())
    options = CollectOptions(trials=8, batch=3, target=json.dumps(other), cost_model="none", mix=(2, 1))
    with pytest.raises(LogError, match=r'its records are of .*"num-cores":2\b.*"num-cores":77\b.*--out'):
        collect_traces(PROGRAMS, folder, options, Told(), measurer=measurer)
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert collect(folder, 7)["measured"] == 2  # its own


def test_failures_are_recorded_as_tvm_does(tmp_path) -> None:
    counts = collect(tmp_path, 12, faulty=True)
    assert counts["failed"] == 2 and counts["records"] == 24
    kinds = [r.measurement.kind for _, r, problem in read_records(tmp_path) if not problem]
    assert kinds.count("unknown") == 2 and kinds.count("ok") == 22
    assert len(ms.database.JSONDatabase(work_dir=str(tmp_path))) == 24


def test_the_process_that_times_has_steady_buffers(monkeypatch) -> None:
    for name in MALLOC_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    seen = []

    def local(*_, **__):  # like TVM's it starts its process when it is made, and again after one that hung
        seen.append(dict(os.environ))
        return P.NoRunner()

    def timed(text) -> float:
        seen.append(dict(os.environ))
        return 1e-3

    monkeypatch.setattr(buffers, "PairedRunner", local)
    monkeypatch.setattr(P, "made_up_seconds", timed)
    measurer = MetaMeasurer(MeasureOptions(), Target(P.CPU), builder=P.NoBuilder())
    candidates = P.sampled(P.context(P.matmul(), P.CPU), 2)
    assert len(list(measurer.measure(candidates))) == len(candidates)
    assert len(seen) == 1 + len(candidates) and all(
        MALLOC_ENVIRONMENT.items() <= found.items() for found in seen
    )
    assert not MALLOC_ENVIRONMENT.keys() & os.environ.keys()


def test_a_builder_that_fails_itself_is_no_failure_of_a_schedule(monkeypatch) -> None:
    monkeypatch.setattr(meta_measure, "RETRY_PAUSE_SECONDS", 0.0)
    candidates = P.sampled(P.context(P.matmul(), P.CPU), 2)
    calls = []

    class Full:
        def __init__(self, times):
            self.times = times

        def build(self, inputs):
            calls.append(len(inputs))
            if len(calls) <= self.times:
                raise OSError("No space left on device")
            return P.NoBuilder().build(inputs)

    def measured(times):
        calls.clear()
        measurer = MetaMeasurer(MeasureOptions(), Target(P.CPU), builder=Full(times), runner=P.NoRunner())
        return [seconds for _, seconds in measurer.measure(candidates)]

    assert all(seconds[0] < 1 for seconds in measured(1)) and len(calls) == 2
    with pytest.raises(EnvironmentProblem, match=r"failed twice: No space left.*is kept"):
        measured(2)


class _Refusing:
    """Fails what `bad` says, by the number of the program it is asked for."""

    def __init__(self, bad) -> None:
        self.bad, self.asked = bad, 0

    def build(self, inputs):
        found = []
        for entry in inputs:
            bad = self.bad(self.asked)
            self.asked += 1
            found += [BuilderResult(None, "ld: not found")] if bad else P.NoBuilder().build([entry])
        return found


def test_a_batch_without_a_time_is_believed_only_where_something_else_can_be_measured(tmp_path) -> None:
    candidates = P.sampled(P.context(P.matmul(), P.CPU), 3)

    def measured(bad):
        builder = _Refusing(bad)
        measurer = MetaMeasurer(MeasureOptions(), Target(P.CPU), builder=builder, runner=P.NoRunner())
        return builder, [(c, t[0] < 1e9) for c, t in measurer.measure(candidates)]

    builder, found = measured(lambda n: n < 3)  # all of them, and the sum can be built
    assert [fine for _, fine in found] == [False] * 3 and builder.asked == 4
    builder, found = measured(lambda n: n == 0)
    assert [fine for _, fine in found] == [False, True, True] and builder.asked == 3
    assert [c for c, _ in found] == candidates
    with pytest.raises(EnvironmentProblem, match=r"none of 3 schedules.*ld: not found.*kept"):
        measured(lambda n: True)


def test_a_program_that_cannot_be_read_is_left_out(tmp_path) -> None:
    measurer = MetaMeasurer(MeasureOptions(), Target(P.CPU), builder=P.NoBuilder(), runner=P.NoRunner())
    options = CollectOptions(trials=2, batch=2, target=TARGET, cost_model="none", mix=(2, 1))
    told, bad = Told(), Program("other", "of another TVM", module_json='{"nonsense": 1}')
    counts = collect_traces([(7, bad), *PROGRAMS], tmp_path, options, told, measurer=measurer)
    assert counts["records"] == 4
    assert any(note.startswith("of another TVM: left out: ") for note in told.notes)


@pytest.mark.parametrize("target", ["nonsense", "{no json"])
def test_a_target_that_tvm_does_not_know_is_named(tmp_path, target) -> None:
    options = CollectOptions(trials=2, batch=2, target=target, cost_model="none", mix=(2, 1))
    with pytest.raises(UnknownName, match=f"--target '{target}'"):
        collect_traces(PROGRAMS, tmp_path, options, Told())


def test_a_target_whose_programs_crash_here_is_refused_before_anything_is_written(
    tmp_path, without_avx512
) -> None:
    skylake = '{"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}'
    options = CollectOptions(trials=2, batch=2, target=skylake, cost_model="none", mix=(2, 1))
    with pytest.raises(EnvironmentProblem, match=r"skylake-avx512.*each would crash"):
        collect_traces(PROGRAMS, tmp_path / "db", options, Told())
    assert not (tmp_path / "db").exists()


def test_a_machine_that_breaks_ends_the_collection_and_records_no_failure(tmp_path) -> None:
    builder = _Refusing(lambda n: n >= 6)  # the first two batches can be built
    measurer = MetaMeasurer(MeasureOptions(), Target(P.CPU), builder=builder, runner=P.NoRunner())
    options = CollectOptions(trials=6, batch=3, target=TARGET, cost_model="none", mix=(2, 1))
    with pytest.raises(EnvironmentProblem, match="ld: not found"):
        collect_traces(PROGRAMS, tmp_path, options, Told(), measurer=measurer)
    kinds = [r.measurement.kind for _, r, problem in read_records(tmp_path) if not problem]
    assert kinds == ["ok"] * 6


@pytest.mark.parametrize(
    "option", [["--rpc", "host:9190", "--key", "k", "--target", "llvm"], ["--noise-check"]]
)
def test_what_only_autoschedulers_collector_does_is_refused(tmp_path, option) -> None:
    command = [
        "collect",
        "--scheduler",
        "meta",
        "--workloads",
        "train",
        "--out",
        str(tmp_path / "db"),
        *option,
    ]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 2 and "AutoScheduler's" in found.output and option[0] in found.output


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


def test_training_programs_build_and_are_none_of_the_benchmarks() -> None:
    found = training_programs()
    keys, ours = set(), set()
    for program in found:
        workload = workload_of(program.module(), "")
        assert workload.flop_ct > 0 and workload.stages, program.desc
        keys.add(workload.key)
        arguments = [stage.shape for stage in workload.stages if stage.kind == "placeholder"]
        ours.add(_without_ones([*arguments, workload.stages[-1].shape]))
    assert len(keys) == len(found) == len(RECIPES)
    theirs = {
        _without_ones([part for part in json.loads(row["workload_key"])[1:] if isinstance(part, list)])
        for row in benchmark_rows()
    }
    assert theirs and not theirs & ours


def _without_ones(shapes: list) -> tuple:
    """Shapes in no order and without their ones: layouts and schedulers place those differently."""
    return tuple(sorted(tuple(int(length) for length in shape if length != 1) for shape in shapes))


def test_programs_come_from_files_too(tmp_path) -> None:
    import tvm

    path = tmp_path / "programs.json.gz"
    rows = [{"network": "n", "desc": "mm", "module": tvm.ir.save_json(P.module(P.matmul()))}]
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    (program,) = read_programs(str(path))
    assert workload_of(program.module(), "").key == workload_of(P.matmul(), "").key
    assert [number for number, _ in select(training_programs(), "0,3-4,softmax")][:3] == [0, 3, 4]
    for wrong in (tmp_path / "none", tmp_path):
        with pytest.raises(DatasetError, match="train"):
            read_programs(str(wrong))
    with pytest.raises(UnknownName, match="nowhere"):
        select(training_programs(), "nowhere")


def test_a_model_guides_the_second_part(tmp_path, monkeypatch) -> None:
    from test_cost_model import StandIn

    import data_builder.metaschedule.collect as module
    from wmsched.metaschedule.cost_model import WorldModelCostModel

    stand_in = StandIn()
    monkeypatch.setattr(module, "_maker", lambda name: lambda: WorldModelCostModel(stand_in))
    counts = collect(tmp_path, 6, cost_model="anything")
    assert counts["records"] == 12
    assert sum(sum(scorer.batches) for scorer in stand_in.scorers) > 12  # it was asked about many more
    with pytest.raises(UnknownName, match="guides AutoScheduler only"):
        monkeypatch.undo()
        collect(tmp_path, 6, cost_model="xgb")
    assert np.isfinite([r.measurement.seconds for _, r, _ in read_records(tmp_path)]).all()
