"""Records of programs that TVM's alias tags may have spoilt are found, and left out where that is asked."""

from __future__ import annotations

import gzip
import json

import pytest
from spoilt import SPOILT, line

from data_builder.base.replay import dag_of
from data_builder.build.aliasing import may_be_miscompiled
from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.build.trajectories import Job, write_workload
from data_builder.read.spool import scan, write_sources
from wmsched.base.errors import DatasetError
from wmsched.schedules.steps import dump_record, parse_record

# The reduction's loops stay loops: 4 steps do not hold them, and the vectors' indices are no numbers.
UNROLLED_LESS = [["PR", 3, 0, "auto_unroll_max_step$4"] if step[0] == "PR" else step for step in SPOILT]
NOT_UNROLLED = [["PR", 3, 0, "auto_unroll_max_step$0"] if step[0] == "PR" else step for step in SPOILT]
NO_VECTORS = [step for step in SPOILT if step[0] != "AN" or step[3] != 2]


def test_unrolled_accumulators_that_a_loop_reads_are_found(pointwise) -> None:
    dag = dag_of(pointwise)
    spoilt = parse_record(line(pointwise, SPOILT, 1))
    assert may_be_miscompiled(dag, spoilt)
    old = "llvm -keys=cpu -link-params=0 -mcpu=skylake-avx512"  # which TVM has dropped since
    assert may_be_miscompiled(dag, parse_record(line(pointwise, SPOILT, 1, old)))
    for steps in (UNROLLED_LESS, NOT_UNROLLED, NO_VECTORS):
        assert not may_be_miscompiled(dag, parse_record(line(pointwise, steps, 1)))
    assert not may_be_miscompiled(dag, parse_record(dump_record(spoilt).replace('"SP",3,4', '"SP",99,4')))


def test_a_build_leaves_them_out_when_asked_and_says_so(pointwise, tmp_path) -> None:
    log, workloads = tmp_path / "a.json", tmp_path / "workloads.json.gz"
    log.write_text(line(pointwise, SPOILT, 1) + "\n" + line(pointwise, UNROLLED_LESS, 2) + "\n")
    workloads.write_bytes(gzip.compress(json.dumps([pointwise]).encode()))
    told: list[str] = []

    class Report:
        def problem(self, text):
            told.append(text)

        def note(self, text): ...
        def start(self, what, total, done): ...
        def step(self): ...

    kept = build([str(log)], tmp_path / "all", BuildOptions(workloads=workloads, jobs=1), Report())
    assert kept["totals"]["records"] == 2
    dropped = build(
        [str(log)],
        tmp_path / "dropped",
        BuildOptions(workloads=workloads, jobs=1, drop_aliased=True),
        Report(),
    )
    assert dropped["totals"]["records"] == 1 and dropped["totals"]["bad"] == 1
    assert any(f"{log}:1" in text and "compiled it wrong" in text for text in told)
    told.clear()
    blind = build([str(log)], tmp_path / "blind", BuildOptions(jobs=1, drop_aliased=True), Report())
    assert blind["totals"]["records"] == 2
    assert any("none could be looked at" in text and "--workloads" in text for text in told)


def test_they_are_found_where_replay_was_given_up_too(pointwise, tmp_path) -> None:
    log, scratch = tmp_path / "a.json", tmp_path / "scratch"
    log.write_text(line(pointwise, SPOILT, 1) + "\n" + line(pointwise, UNROLLED_LESS, 2) + "\n")
    (name,) = scan((str(log),), scratch, on_problem=print)["workloads"]
    write_sources(scratch, [str(log)])
    job = Job(
        workload_id=name, count=2, row=pointwise, out=tmp_path / "ds", scratch=scratch,
        states_per_workload=12, replay=False, drop_aliased=True,
    )  # fmt: skip
    done = write_workload(job, lambda position, place: None)
    assert done["sources"] == {str(log): {"records": 1, "bad": 1, "kind:ok": 1}}


def test_databases_of_meta_schedule_refuse_the_option(tmp_path) -> None:
    for name in ("database_workload.json", "database_tuning_record.json"):
        (tmp_path / name).write_text("")
    with pytest.raises(DatasetError, match="--drop-aliased"):
        build([str(tmp_path)], tmp_path / "out", BuildOptions(drop_aliased=True), None)  # type: ignore[arg-type]
