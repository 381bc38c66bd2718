"""`wmsched tune MODEL`: models from files and by name, a library that computes the same, resuming, kills."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import programs as P
import pytest
import torch
import tvm
from rich.console import Console
from torch import nn
from tvm import relax
from tvm.s_tir import meta_schedule as ms
from typer.testing import CliRunner

from wmsched import meta_database, tuned_folder
from wmsched.backends import meta_measure, relax_build, relax_builds, relax_finalists, relax_tune
from wmsched.backends.meta_measure import Measurer
from wmsched.backends.relax_finalists import database_of
from wmsched.backends.relax_latency import (
    COARSE,
    TOLERANCE,
    difference,
    library_call,
    tolerance,
)
from wmsched.backends.relax_models import load
from wmsched.backends.relax_prepare import SETTINGS, prepare_model
from wmsched.backends.relax_tune import ModelOptions, tune_model
from wmsched.backends.tir_workload import host_target
from wmsched.cli import app
from wmsched.cores import unbound
from wmsched.errors import EnvironmentProblem, LogError, UnknownName, WmschedError
from wmsched.meta_database import RECORDS

needs_onnx = pytest.mark.skipif(
    importlib.util.find_spec("onnx") is None, reason="the package onnx is not installed: pip install onnx"
)
TASKS = 5  # of Net: convolution, pooling, dense, and between them what puts channels last, and first again
ALL = dict.fromkeys(SETTINGS, True)


class Net(nn.Module):
    """A convolution with batch normalisation, pooling and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.dense = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.dense(nn.functional.max_pool2d(x, 16).flatten(1))


class Sum(nn.Module):
    def forward(self, x, y):
        return torch.relu(x) + y


def exported(folder: Path, name: str, module: nn.Module, *inputs, dynamic=None) -> str:
    path = folder / name
    program = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    batch = torch.export.Dim("batch")
    some = torch.randn(2, 4)
    return {
        "net": exported(folder, "net.pt2", Net(), torch.randn(1, 3, 16, 16)),
        "other": exported(folder, "other.pt2", Net(), torch.randn(1, 3, 16, 16)),
        "wide": exported(folder, "wide.pt2", Net(), torch.randn(2, 3, 16, 16)),
        "open": exported(folder, "open.pt2", Sum(), some, some, dynamic=({0: batch}, {0: batch})),
        "view": exported(folder, "view.pt2", nn.Flatten(0), some),
        "slice": exported(folder, "slice.pt2", nn.Embedding(50, 4), torch.arange(40).view(4, 10)[1:2]),
    }


def small():
    return ms.search_strategy.EvolutionarySearch(
        population_size=16, genetic_num_iters=1, init_min_unmeasured=8
    )


def made_up(**parts) -> Measurer:
    """A measurer whose times are a function of the program."""
    return Measurer(
        tvm.target.Target(host_target()), **({"builder": P.NoBuilder(), "runner": P.NoRunner()} | parts)
    )


def run(name: str, out: Path, *, measurer=None, cost_model="random", finalists=1, **settings):
    """Tune with made-up times and a small search; what it printed, and what it came to."""
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    found = tune_model(
        ModelOptions(name=name, out=out, cost_model=cost_model, seed=1, finalists=finalists, **settings),
        console=console,
        measurer=measurer or made_up(),
        strategy=small,
    )
    return console.export_text(), found


def records(out: Path) -> list[list]:
    return [json.loads(line) for line in (out / RECORDS).read_text().splitlines()]


def schedules(out: Path) -> list[str]:
    return [json.dumps([program, trace]) for program, (trace, *_) in records(out)]


def off_from_torch(library: Path, name: str) -> float:
    """How far a library's outputs are from the model's in PyTorch."""
    model = load(name)
    call = library_call(library, tvm.target.Target(host_target()), list(model.inputs.values()))
    with unbound():
        return difference(call(), model.eager())


@pytest.fixture(scope="module")
def tuned(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned") / "net"
    return out, *run(files["net"], out, trials=12, finalists=4)


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
    chosen = records(out / tuned_folder.BEST)
    assert len({program for program, _ in chosen}) == len(chosen) == TASKS
    assert {json.dumps(record[0]) for _, record in chosen} <= {json.dumps(r[0]) for _, r in records(out)}
    (view,) = (task.name for task in found.tasks if not task.in_model > 0)  # the machine makes a view of it
    assert "reshape" in view
    target = tvm.target.Target(host_target())
    prepared, _ = prepare_model(load(files["net"]), target, ALL, tmp_path)
    made = relax_build.compile_module(prepared, target, database_of(out / tuned_folder.BEST))
    made.export_library(str(tmp_path / "best.so"))
    assert off_from_torch(tmp_path / "best.so", files["net"]) < 1e-5


def test_schedules_chosen_in_the_model_that_compute_something_else_are_left_out(files, tmp_path, monkeypatch):
    right, made = relax_builds.Builds.add, []

    def wrong(self, name, schedules):
        made.append(name)
        if name == relax_builds.CHOSEN:
            self.prepared = relax_build.prepare(load(files["other"]).module, self.target)
        return right(self, name, schedules)

    def second(programs, *_, **__):
        for one in programs:
            one.chosen = len(one.records) - 1
        return True

    monkeypatch.setattr(relax_builds.Builds, "add", wrong)
    monkeypatch.setattr(relax_builds, "choose", second)
    # which candidates a search draws depends on the machine, and with them which made-up times are close
    monkeypatch.setattr(relax_finalists, "WITHIN", math.inf)
    text, found = run(files["net"], tmp_path, trials=12, finalists=4)
    assert made == [relax_builds.ALONE, relax_builds.CHOSEN] and found.alone is None
    assert "left out: the build's outputs are off by" in text and found.difference < 1e-5
    assert {r[0] for r in records(tmp_path / tuned_folder.BEST)} == {r[0] for r in records(tmp_path)}
    made.clear()
    run(files["net"], tmp_path, trials=12, resume=True)
    assert made == [relax_builds.ALONE]


def test_the_best_schedules_of_the_database_are_in_the_tuned_build(tuned, files, tmp_path):
    """Whichever build the library is: the tuned one has scheduled functions, and is right."""
    out, _, _ = tuned
    target = tvm.target.Target(host_target())
    prepared, _ = prepare_model(load(files["net"]), target, ALL, tmp_path)
    assert "T.parallel" not in prepared.script() and "T.vectorized" not in prepared.script()
    database = ms.database.JSONDatabase(work_dir=str(out))
    with target, database:
        scheduled = relax.transform.MetaScheduleApplyDatabase()(prepared)
    assert scheduled.script().count('"tirx.is_scheduled": True') == TASKS
    relax_build.compile_module(prepared, target, database).export_library(str(tmp_path / "tuned.so"))
    assert off_from_torch(tmp_path / "tuned.so", files["net"]) < 1e-5


def test_weights_are_laid_out_as_the_schedules_want_them_when_the_library_is_built(tuned, files, tmp_path):
    out, _, _ = tuned
    target = tvm.target.Target(host_target())
    prepared, _ = prepare_model(load(files["net"]), target, ALL, tmp_path)
    marked = {
        str(name.name_hint): [int(k) for k in function.attrs["layout_free_buffers"]]
        for name, function in prepared.functions.items()
        if "layout_free_buffers" in (function.attrs or {})
    }
    assert marked and all(len(places) == 1 for places in marked.values())
    plain, _ = prepare_model(load(files["net"]), target, ALL | {"pack_weights": False}, tmp_path)
    assert {str(name.name_hint) for name in plain.functions} == {
        str(name.name_hint) for name in prepared.functions
    }
    database = ms.database.JSONDatabase(work_dir=str(out))
    executable = relax_build.compile_module(prepared, target, database)
    assert "_prepacked" in executable.as_text() and "_weight_prepack" not in executable.as_text()


def test_a_folder_goes_on_as_it_began(files, tmp_path):
    """Records of programs with other weights' layouts, or timed with other mathematics, do not compare."""
    run(files["net"], tmp_path, trials=3, **dict.fromkeys(SETTINGS, False))
    about = json.loads((tmp_path / "model.json").read_text())
    assert not any(about[name] for name in SETTINGS)
    programs = (tmp_path / "database_workload.json").read_text()
    text, found = run(files["net"], tmp_path, trials=6, resume=True)
    for option in ("--vector-math", "--pack-weights", "--channels-last"):
        assert f"was begun without {option} and goes on so" in text
    assert (tmp_path / "database_workload.json").read_text() == programs
    assert json.loads((tmp_path / "model.json").read_text())["pack_weights"] is False
    assert sum(task.trials for task in found.tasks) == 6


def test_candidates_and_library_have_vector_math_unless_it_is_declined(files, tmp_path, monkeypatch):
    seen = []
    right = relax_build.compile_module

    def spy(prepared, target, database=None, *, vector_math=False):
        seen.append((database is not None, vector_math))
        return right(prepared, target, database, vector_math=vector_math)

    monkeypatch.setattr(relax_build, "compile_module", spy)
    _, found = run(files["net"], tmp_path / "yes", trials=3)
    assert seen[-2:] == [(False, False), (True, True)]
    report = json.loads((tmp_path / "yes" / "report.json").read_text())
    assert report["vector_math"] is (found.kept == "tuned")
    seen.clear()
    run(files["net"], tmp_path / "no", trials=3, vector_math=False)
    assert seen[-2:] == [(False, False), (True, False)]


def test_resuming_counts_what_there_is_and_measures_nothing_twice(tuned, files):
    out, *_ = tuned
    before = (out / RECORDS).read_bytes()
    with pytest.raises(LogError, match=r"12 records are in it already: --resume"):
        run(files["net"], out, trials=18)
    text, found = run(files["net"], out, trials=18, resume=True)
    assert "6/6 trials" in text and sum(task.trials for task in found.tasks) == 18
    assert (out / RECORDS).read_bytes().startswith(before)
    assert len(schedules(out)) == len(set(schedules(out))) == 18
    text, found = run(files["net"], out, trials=18, resume=True)
    assert "18 trials already" in text and len(records(out)) == 18
    assert sum(task.trials for task in found.tasks) == 18


def test_a_schedule_of_the_database_is_not_measured_again_even_if_it_is_proposed(files, tmp_path):
    """The same seed proposes the same schedules: without the database's keys all would be measured twice.
    A model that learns is given the database first."""
    run(files["net"], tmp_path, trials=6)
    run(files["net"], tmp_path, trials=12, resume=True, cost_model="xgb")
    assert len(schedules(tmp_path)) == len(set(schedules(tmp_path))) == 12


def test_another_model_or_a_folder_of_unknown_origin_is_refused(tuned, files, tmp_path):
    out, *_ = tuned
    with pytest.raises(WmschedError, match=r"net\.pt2 .*this is .*wide\.pt2 .*choose another --out"):
        run(files["wide"], out, trials=18, resume=True)
    (tmp_path / RECORDS).write_text("")
    with pytest.raises(WmschedError, match=r"a database and no model\.json"):
        run(files["net"], tmp_path, trials=6)


def test_a_search_without_time_or_without_a_result_leaves_a_valid_library(files, tmp_path):
    _, found = run(files["net"], tmp_path / "late", minutes=0.0)
    assert found.kept == "untuned" and found.why == "the database has no schedule that ran"
    assert off_from_torch(found.library, files["net"]) < 1e-5
    text, found = run(
        files["net"], tmp_path / "broken", trials=TASKS, measurer=made_up(builder=P.NoBuilder(every=1))
    )
    assert found.kept == "untuned" and all(task.failed == task.trials == 1 for task in found.tasks)
    assert f"{TASKS}/{TASKS} trials" in text and off_from_torch(found.library, files["net"]) < 1e-5


def test_a_tuned_build_that_computes_something_else_is_not_kept(files, tmp_path, monkeypatch):
    right = relax_build.compile_module

    def wrong(prepared, target, database=None, **how):
        if database is not None:
            prepared = relax_build.prepare(load(files["other"]).module, target)
        return right(prepared, target, database, **how)

    monkeypatch.setattr(relax_build, "compile_module", wrong)
    _, found = run(files["net"], tmp_path, trials=3)
    assert found.kept == "untuned" and "outputs are off by" in found.why
    assert off_from_torch(found.library, files["net"]) < 1e-5


def test_a_model_that_tvm_cannot_build_is_refused_before_the_search(files, tmp_path, monkeypatch):
    def broken(*given, **how):
        raise RuntimeError("no rule for such an operation")

    monkeypatch.setattr(relax_build, "compile_module", broken)
    with pytest.raises(WmschedError, match=r"net\.pt2: TVM .* cannot build .*no rule for such an operation"):
        run(files["net"], tmp_path, trials=3)
    assert not (tmp_path / RECORDS).exists()


def test_a_model_that_tvm_takes_for_another_is_told_of_before_the_search(
    files, tmp_path, monkeypatch, caplog
):
    torch.manual_seed(1)
    other, right = exported(tmp_path, "other.pt2", Net(), torch.randn(1, 3, 16, 16)), load(files["net"])
    monkeypatch.setattr(relax_tune, "load", lambda *given: replace(right, module=load(other).module))
    with caplog.at_level(logging.WARNING, "wmsched"):
        _, found = run(files["net"], tmp_path / "out", trials=3)
    (told,) = [record.message for record in caplog.records if "something else than PyTorch" in record.message]
    assert "model.eval()" in told and found.difference > TOLERANCE


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
    target = tvm.target.Target(host_target())
    prepared, _ = prepare_model(load(name), target, ALL, tmp_path)
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "out"))
    executable = relax_build.compile_module(prepared, target, database)
    assert "_prepacked" in executable.as_text()
    executable.export_library(str(tmp_path / "tuned.so"))
    assert off_from_torch(tmp_path / "tuned.so", name) < 1e-5


KILLED = """
import importlib, sys, time, types
import xgboost, torch, tvm, tvm.s_tir
package = types.ModuleType("tvm.s_tir.tensor_intrin")  # all of it takes half a minute; x86's are enough here
package.__path__ = [tvm.s_tir.__path__[0] + "/tensor_intrin"]
sys.modules[package.__name__] = tvm.s_tir.tensor_intrin = package
importlib.import_module("tvm.s_tir.tensor_intrin.x86")
from pathlib import Path
from test_tune_model import made_up, small
from wmsched.backends.relax_tune import ModelOptions, tune_model

class Slow:
    def measure(self, candidates):
        for pair in made_up().measure(candidates):
            time.sleep(0.2)
            yield pair

options = ModelOptions(name=sys.argv[1], out=Path(sys.argv[2]), trials=100, cost_model="random", seed=1)
tune_model(options, measurer=Slow(), strategy=small)
"""


def test_a_run_that_is_killed_goes_on(files, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", KILLED, files["net"], str(tmp_path)]
    path = tmp_path / RECORDS
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as child:
        limit = time.monotonic() + 300
        while not path.is_file() or len(path.read_bytes().splitlines()) < 5:
            assert child.poll() is None and time.monotonic() < limit, child.stdout.read().decode()
            time.sleep(0.05)
        with pytest.raises(WmschedError, match="another run is writing"):
            run(files["net"], tmp_path, trials=9, resume=True)
        child.send_signal(signal.SIGKILL)
    whole = path.read_bytes().count(b"\n")
    with path.open("ab") as stream:  # as if the kill had come in the midst of a line
        stream.write(b'[0,[[[["GetSBlock",[],["C"')
    (tmp_path / ".build-left").mkdir()
    before = path.read_bytes()[: path.read_bytes().rfind(b"\n") + 1]
    text, found = run(files["net"], tmp_path, trials=whole + 3, resume=True)
    assert "26 bytes of a line that was never finished" in text and "3/3 trials" in text
    assert path.read_bytes().startswith(before) and len(set(schedules(tmp_path))) == whole + 3
    assert off_from_torch(found.library, files["net"]) < 1e-5 and not list(tmp_path.glob(".build-*"))


def test_an_interrupt_leaves_what_was_measured(files, tmp_path):
    class Pressed:
        def measure(self, candidates):
            for number, pair in enumerate(made_up().measure(candidates)):
                if number == 1:
                    os.kill(os.getpid(), signal.SIGINT)
                yield pair

    with pytest.raises(KeyboardInterrupt):
        run(files["net"], tmp_path, trials=12, measurer=Pressed())
    assert len(records(tmp_path)) == 1 and not (tmp_path / "model.so").exists()
    text, _ = run(files["net"], tmp_path, trials=3, resume=True)
    assert "2/2 trials" in text and len(set(schedules(tmp_path))) == 3


def test_a_database_that_does_not_grow_ends_the_run(files, tmp_path):
    class Full:
        def measure(self, candidates):
            for number, pair in enumerate(made_up().measure(candidates)):
                if number == 1:
                    os.truncate(tmp_path / RECORDS, 0)
                yield pair

    with pytest.raises(LogError, match=r"1 records could not be written: make room .* --resume"):
        run(files["net"], tmp_path, trials=12, measurer=Full())


def test_a_machine_on_which_nothing_can_be_measured_has_no_failed_schedules(files, tmp_path, monkeypatch):
    def broken(target, **_):
        return Measurer(target, builder=P.NoBuilder(every=1), runner=P.NoRunner())

    monkeypatch.setattr(meta_measure, "Measurer", broken)
    with pytest.raises(EnvironmentProblem, match="nor a program that must work: made to fail"):
        tune_model(
            ModelOptions(name=files["net"], out=tmp_path, cost_model="random", seed=1, trials=6),
            console=Console(file=open(os.devnull, "w")),  # noqa: SIM115
            strategy=small,
        )
    assert not (tmp_path / RECORDS).exists() or records(tmp_path) == []


def test_an_example_that_is_a_view_is_copied_to_where_tvm_takes_it(files):
    model = load(files["slice"])
    (data,) = model.inputs.values()
    assert data.data_ptr() % 64 == 0 and data.shape == (1, 10)
    assert tvm.runtime.from_dlpack(data).numpy().tolist() == [list(range(10, 20))]


def test_a_broken_line_in_the_midst_is_named(files, tmp_path):
    run(files["net"], tmp_path, trials=3)
    good = (tmp_path / RECORDS).read_text().splitlines()
    for bad, reason in (
        ("nonsense", "not JSON"),
        (good[1].replace("[0,", "[7,", 1).replace("[1,", "[7,", 1), "it is of program 7"),
        ("[0, 1]", "no record"),
    ):
        (tmp_path / RECORDS).write_text("\n".join([good[0], bad, good[2], ""]))
        with pytest.raises(LogError, match=rf"{RECORDS}:2: {reason}.*delete this line"):
            run(files["net"], tmp_path, trials=6, resume=True)
    assert meta_database.mend(tmp_path) == []  # every line has its end


def test_symbolic_shapes_and_files_that_are_no_models(files, tmp_path):
    with pytest.raises(WmschedError, match=r"--shape x=1,4"):
        load(files["open"])
    model = load(files["open"], {"x": (3, 4)})
    assert [tuple(data.shape) for data in model.inputs.values()] == [(3, 4), (3, 4)]
    assert tuple(model.eager()[0].shape if isinstance(model.eager(), tuple) else model.eager().shape) == (
        3,
        4,
    )
    for shapes, kind, reason in (
        ({"z": (3, 4)}, UnknownName, "no such input; its inputs: x, y"),
        ({"x": (3, 5)}, WmschedError, "cannot be changed"),
        ({"x": (3,)}, WmschedError, "has x with shape"),
        ({"x": (3, 4), "y": (2, 4)}, WmschedError, "in another input"),
    ):
        with pytest.raises(kind, match=reason):
            load(files["open"], shapes)
    with pytest.raises(WmschedError, match="no tunable task"):
        run(files["view"], tmp_path / "out", trials=3)
    (tmp_path / "bad.pt2").write_text("no model")
    with pytest.raises(WmschedError, match=r"cannot load it .*torch\.export\.save"):
        load(str(tmp_path / "bad.pt2"))
    for name in ("none.onnx", "resnet51"):
        with pytest.raises(UnknownName, match=r"no such file|did you mean resnet50"):
            load(name)


def test_a_benchmark_model_by_name(monkeypatch):
    from wmsched.zoo import torch_models

    monkeypatch.setitem(
        torch_models.MODELS,
        "small-attention",
        (lambda: torch_models.Attention(32, 2, causal=True), (1, 8, 32)),
    )
    model = load("small-attention")
    target = tvm.target.Target(host_target())
    names = [task.name for task in relax_build.tasks(relax_build.prepare(model.module, target), target)]
    assert any("matmul" in name for name in names) and any("softmax" in name for name in names)
    with pytest.raises(WmschedError, match="has the benchmark's shapes"):
        load("small-attention", {"x": (2, 8, 32)})


def onnx_model(path: Path, batch) -> torch.Tensor:
    """A convolution and a relu in a file; its weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = torch.randn(8, 3, 3, 3)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["data.1", "w"], ["y"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "net",
        [helper.make_tensor_value_info("data.1", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [batch, 8, 8, 8])],
        [numpy_helper.from_array(weights.numpy(), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return weights


def test_infinite_outputs_are_compared_by_place_and_hide_no_error():
    inf = float("inf")
    right = torch.tensor([1.0, -inf, 2.0, torch.finfo(torch.float32).min])
    wrong = torch.tensor([1.5, -inf, 2.0, torch.finfo(torch.float32).min])
    assert difference(right.clone(), right) == 0.0
    assert difference(wrong, right) == pytest.approx(0.25)
    assert difference(torch.tensor([1.0, inf, 2.0, -inf]), right) == inf
    assert difference(torch.tensor([1.0, 0.0, 2.0, -inf]), right) == inf
    assert difference(torch.tensor([-inf]), torch.tensor([-inf])) == 0.0
    assert difference(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])) == inf


def test_short_types_may_differ_by_a_rounding_whether_they_come_in_or_out():
    tokens, logits = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.bfloat16)
    assert tolerance([tokens, logits]) == tolerance([torch.zeros(2, dtype=torch.int8)]) == COARSE
    assert tolerance([tokens, torch.zeros(2), torch.zeros(2, dtype=torch.bool)]) == TOLERANCE


@needs_onnx
def test_an_onnx_model_becomes_a_library_that_computes_the_same(tmp_path):
    path = tmp_path / "net.onnx"
    weights = onnx_model(path, "batch")
    with pytest.raises(WmschedError, match=r"data\.1 has the shape batch,3,8,8.*--shape data\.1=1,3,8,8"):
        load(str(path))
    with pytest.raises(WmschedError, match="with 4 dimensions"):
        load(str(path), {"data.1": (2, 3, 8)})
    shapes = {"data.1": (2, 3, 8, 8)}
    _, found = run(str(path), tmp_path / "out", trials=3, shapes=shapes)
    assert "eager" not in found.seconds and found.why_not_eager.startswith("not available for ONNX")
    data = load(str(path), shapes).inputs["data.1"]
    call = library_call(found.library, tvm.target.Target(host_target()), [data])
    with unbound():
        assert difference(call(), torch.relu(nn.functional.conv2d(data, weights, padding=1))) < 1e-5
    (tmp_path / "bad.onnx").write_text("no model")
    with pytest.raises(WmschedError, match="cannot be read as an ONNX model"):
        load(str(tmp_path / "bad.onnx"))


def test_without_the_package_onnx_the_remedy_is_named(tmp_path, monkeypatch):
    (tmp_path / "net.onnx").write_bytes(b"")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r"net\.onnx: .*pip install onnx"):
        load(str(tmp_path / "net.onnx"))


def test_the_best_bundle_there_is(monkeypatch):
    told: list[str] = []
    for kind, shipped, expected in (
        ("llvm", ["x86-avx512", "x86-meta"], "x86-meta"),
        ("llvm", ["x86-avx512"], "x86-avx512"),
        ("cuda", ["cuda-meta", "x86-meta"], "cuda-meta"),
        ("cuda", ["x86-avx512", "x86-meta"], "xgb"),
        ("vulkan", ["cuda-meta", "x86-meta"], "xgb"),
    ):
        monkeypatch.setattr(relax_tune, "shipped", lambda have=shipped: have)
        assert relax_tune.default_cost_model(kind, told.append) == expected
    assert len(told) == 3 and all("--cost-model" in text for text in told)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["model.pth"], "torch.export.save"),
        (["net.tflite", "--scheduler", "meta"], "export ONNX"),
        (["resnet50/6", "--shape", "x=1"], "is for --scheduler meta"),
        (["resnet50/6", "--no-pack-weights"], "is for --scheduler meta"),
        (["resnet50/6", "--channels-last"], "is for --scheduler meta"),
        (["net.pt2", "--log", "a.json"], "is for --scheduler ansor"),
        (["resnet50", "--scheduler", "meta", "--rounds", "2"], "is for --scheduler ansor"),
        (["net.onnx", "--scheduler", "ansor"], "--scheduler meta"),
        (["resnet50", "--scheduler", "other"], "neither ansor nor meta"),
        (["net.onnx", "--shape", "x=1,b"], "no shape of an input"),
        (["net.onnx", "--shape", "1,2"], "no shape of an input"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, reason):
    done = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, ["tune", *arguments])
    assert done.exit_code == 2 and reason in done.output


@pytest.mark.slow
def test_the_command_with_this_machines_compiler_and_the_default_bundle(files, tmp_path):
    command = [
        sys.executable,
        "-m",
        "wmsched.cli",
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


def test_the_command_line_leaves_out_what_it_is_told_to(monkeypatch):
    seen = []

    def stop(options, **_):
        seen.append({name: getattr(options, name) for name in (*SETTINGS, "finalists")})
        raise KeyboardInterrupt

    monkeypatch.setattr(relax_tune, "tune_model", stop)
    CliRunner().invoke(app, ["tune", "net.pt2"])
    no = [f"--no-{name.replace('_', '-')}" for name in SETTINGS]
    CliRunner().invoke(app, ["tune", "net.pt2", *no, "--finalists", "1"])
    assert seen == [
        dict.fromkeys(SETTINGS, True) | {"finalists": 4},
        dict.fromkeys(SETTINGS, False) | {"finalists": 1},
    ]


def test_a_round_s_search_is_as_large_as_the_round_wants():
    assert [relax_tune._search_for(n).population_size for n in (4, 16, 32, 64, 99)] == [
        128,
        128,
        256,
        512,
        512,
    ]
    assert relax_tune._search_for(4, draws_many=True).population_size == 512  # a GPU's spaces
