"""`wmsched tune MODEL`: a library that computes the same, with the best of the schedules that were found."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import programs as P
import pytest
import torch
import tvm
from torch import nn
from tuning_models import ALL, TASKS, exported, imported, made_up, off_from_torch, records, run
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from wmsched.relax.passes import pipeline
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune import builds, folder, in_model_selection
from wmsched.tune.in_model_selection import database_of
from wmsched.tune.prepare import prepare_model


def test_a_torch_program_becomes_a_library_that_computes_the_same(tuned, files):
    out, text, found = tuned
    assert found.library == out / "model.so" and off_from_torch(found.library, files["net"]) < 1e-5
    assert set(found.seconds) == {"untuned", "tuned", "eager"}
    assert all(seconds > 0 for seconds in found.seconds.values()) and found.difference < 1e-5
    assert len(found.tasks) == TASKS and sum(task.trials for task in found.tasks) == 12
    assert len(records(out)) == 12 and "12/12 trials" in text
    report = json.loads((out / "report.json").read_text())
    assert report["seconds"] == found.seconds and report["library"]["build"] == found.kept
    assert not list(out.glob(".build-*"))


def test_the_schedules_of_the_library_are_left_as_a_database(tuned, files, tmp_path):
    """One for each program; those with a second one have been timed in the model."""
    out, _, found = tuned
    chosen = records(out / folder.BEST)
    assert len({program for program, _ in chosen}) == len(chosen) == TASKS
    assert {json.dumps(record[0]) for _, record in chosen} <= {json.dumps(r[0]) for _, r in records(out)}
    (view,) = (task.name for task in found.tasks if not task.in_model > 0)  # the machine makes a view of it
    assert "reshape" in view
    target = tvm.target.Target(meta_host_target())
    prepared, _ = prepare_model(imported(files["net"]), target, ALL, tmp_path)
    made = pipeline.compile_module(prepared, target, database_of(out / folder.BEST))
    made.export_library(str(tmp_path / "best.so"))
    assert off_from_torch(tmp_path / "best.so", files["net"]) < 1e-5


def test_schedules_chosen_in_the_model_that_compute_something_else_are_left_out(files, tmp_path, monkeypatch):
    right, made = builds.Builds.add, []

    def wrong(self, name, schedules, *link):
        made.append(name)
        if name == builds.CHOSEN:
            self.prepared = pipeline.prepare(imported(files["other"]).module, self.target)
        return right(self, name, schedules, *link)

    def second(programs, *_, **__):
        for one in programs:
            one.chosen = len(one.records) - 1
        return True

    monkeypatch.setattr(builds.Builds, "add", wrong)
    monkeypatch.setattr(builds, "choose", second)
    # which candidates a search draws depends on the machine, and with them which made-up times are close
    monkeypatch.setattr(in_model_selection, "WITHIN", math.inf)
    text, found = run(files["net"], tmp_path, trials=12, finalists=4)
    assert made == [builds.ALONE, builds.CHOSEN] and found.alone is None
    assert "left out: the build's outputs are off by" in text and found.difference < 1e-5
    assert {r[0] for r in records(tmp_path / folder.BEST)} == {r[0] for r in records(tmp_path)}
    made.clear()
    run(files["net"], tmp_path, trials=12, resume=True)
    assert made == [builds.ALONE]


def test_the_best_schedules_of_the_database_are_in_the_tuned_build(tuned, files, tmp_path):
    """Whichever build the library is: the tuned one has scheduled functions, and is right."""
    out, _, _ = tuned
    target = tvm.target.Target(meta_host_target())
    prepared, _ = prepare_model(imported(files["net"]), target, ALL, tmp_path)
    assert "T.parallel" not in prepared.script() and "T.vectorized" not in prepared.script()
    database = ms.database.JSONDatabase(work_dir=str(out))
    with target, database:
        scheduled = relax.transform.MetaScheduleApplyDatabase()(prepared)
    assert scheduled.script().count('"tirx.is_scheduled": True') == TASKS
    pipeline.compile_module(prepared, target, database).export_library(str(tmp_path / "tuned.so"))
    assert off_from_torch(tmp_path / "tuned.so", files["net"]) < 1e-5


def test_weights_are_laid_out_as_the_schedules_want_them_when_the_library_is_built(tuned, files, tmp_path):
    out, _, _ = tuned
    target = tvm.target.Target(meta_host_target())
    prepared, _ = prepare_model(imported(files["net"]), target, ALL, tmp_path)
    marked = {
        str(name.name_hint): [int(k) for k in function.attrs["layout_free_buffers"]]
        for name, function in prepared.functions.items()
        if "layout_free_buffers" in (function.attrs or {})
    }
    assert marked and all(len(places) == 1 for places in marked.values())
    plain, _ = prepare_model(imported(files["net"]), target, ALL | {"pack_weights": False}, tmp_path)
    assert {str(name.name_hint) for name in plain.functions} == {
        str(name.name_hint) for name in prepared.functions
    }
    database = ms.database.JSONDatabase(work_dir=str(out))
    executable = pipeline.compile_module(prepared, target, database)
    assert "_prepacked" in executable.as_text() and "_weight_prepack" not in executable.as_text()


def test_candidates_and_library_have_vector_math_unless_it_is_declined(files, tmp_path, monkeypatch):
    seen, compiled = [], []
    right = pipeline.compile_module

    def spy(prepared, target, database=None, *, vector_math=False, objects=None, **more):
        seen.append((database is not None, vector_math))
        compiled.append(objects)
        return right(prepared, target, database, vector_math=vector_math, objects=objects, **more)

    monkeypatch.setattr(pipeline, "compile_module", spy)
    _, found = run(files["net"], tmp_path / "yes", trials=3)
    assert set(seen) == {(False, False), (True, True)} and seen[-1] == (True, True)
    assert compiled[0] is not None and len(set(map(id, compiled))) == 1  # of all builds of the run
    report = json.loads((tmp_path / "yes" / "report.json").read_text())
    assert report["vector_math"] is (found.kept == "tuned")
    seen.clear()
    run(files["layers"], tmp_path / "no", trials=3, vector_math=False)
    assert set(seen) == {(False, False), (True, False)} and seen[-1] == (True, False)


def test_a_search_without_time_or_without_a_result_leaves_a_valid_library(files, tmp_path):
    _, found = run(files["net"], tmp_path / "late", minutes=0.0)
    assert {(task.how, task.trials) for task in found.tasks} == {("constructed", 0)}
    assert off_from_torch(found.library, files["net"]) < 1e-5
    text, found = run(
        files["net"], tmp_path / "broken", trials=TASKS, measurer=made_up(builder=P.NoBuilder(every=1))
    )
    assert all(task.failed == task.trials == 1 for task in found.tasks)
    assert {task.how for task in found.tasks} <= {"constructed", "by rule"}
    assert f"{TASKS}/{TASKS} trials" in text and off_from_torch(found.library, files["net"]) < 1e-5


def test_a_tuned_build_that_computes_something_else_is_not_kept(files, tmp_path, monkeypatch):
    right = pipeline.compile_module

    def wrong(prepared, target, database=None, **how):
        if database is not None:
            prepared = pipeline.prepare(imported(files["other"]).module, target)
        return right(prepared, target, database, **how)

    monkeypatch.setattr(pipeline, "compile_module", wrong)
    _, found = run(files["net"], tmp_path, trials=3)
    assert found.kept == "untuned" and "outputs are off by" in found.why
    assert off_from_torch(found.library, files["net"]) < 1e-5


class Scan(nn.Module):
    """Dense layers around a sum along an axis, which TVM computes by no nest of loops."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)).cumsum(0))


def test_weights_are_laid_out_beside_programs_of_another_form(tmp_path):
    name = exported(tmp_path, "scan.pt2", Scan(), torch.randn(4, 16))
    _, found = run(name, tmp_path / "out", trials=8)
    assert "failed" not in found.why
    target = tvm.target.Target(meta_host_target())
    prepared, _ = prepare_model(imported(name), target, ALL, tmp_path)
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "out"))
    executable = pipeline.compile_module(prepared, target, database)
    assert "_prepacked" in executable.as_text()
    executable.export_library(str(tmp_path / "tuned.so"))
    assert off_from_torch(tmp_path / "tuned.so", name) < 1e-5


@pytest.mark.slow
def test_the_command_with_this_machines_compiler_and_the_default_bundle(files, tmp_path):
    command = [
        sys.executable,
        "-m",
        "wmsched.cli.main",
        "tune",
        files["net"],
        "--out",
        str(tmp_path),
        "--trials",
        "12",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    for line in ("before: not tuned", "after: tuned", "PyTorch eager", "library:"):
        assert line in done.stdout
    assert off_from_torch(tmp_path / "model.so", files["net"]) < 1e-5
    report = json.loads((tmp_path / "report.json").read_text())
    assert sum(task["trials"] for task in report["tasks"]) == 12
