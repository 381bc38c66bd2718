"""MetaSchedule databases: collected, resumed after a kill; the programs that they are collected from."""

from __future__ import annotations

import gzip
import json
import os
import shutil

import numpy as np
import programs as P
import pytest
from collected import PROGRAMS, TARGET, Told, collect
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.target import Target
from typer.testing import CliRunner

from data_builder.cli.main import app
from data_builder.collect.collect import CollectOptions
from data_builder.collect.measure import MeasureOptions
from data_builder.metaschedule.collect import collect_traces
from data_builder.metaschedule.measure import MetaMeasurer
from data_builder.metaschedule.programs import RECIPES, Program, read_programs, select, training_programs
from data_builder.read.databases import (
    RECORDS,
    WORKLOADS,
    read_records,
)
from wmsched.base.errors import DatasetError, EnvironmentProblem, LogError, UnknownName
from wmsched.measure.malloc_env import MALLOC_ENVIRONMENT
from wmsched.metaschedule.measure import buffers
from wmsched.metaschedule.measure import measurer as meta_measure
from wmsched.metaschedule.workload import workload_of
from wmsched.zoo import rows as benchmark_rows


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
    from scripted_model import StandIn

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
