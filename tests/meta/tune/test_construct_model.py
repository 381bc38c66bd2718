"""Whole models in seconds: constructed schedules, rules where there is none, failures by function."""

from __future__ import annotations

import json
import random

import pytest
import torch
import tvm
from torch import nn
from tuning_models import Layers, exported, imported, off_from_torch, quick_timing, run
from typer.testing import CliRunner

import wmsched
from wmsched.base.errors import WmschedError
from wmsched.cli.main import app
from wmsched.metaschedule.construct import RANK_SECONDS, is_constructed
from wmsched.relax.importers.model import Model
from wmsched.relax.passes import objects, pipeline
from wmsched.relax.passes.default_schedules import apply_default_schedules
from wmsched.schedules.database import RECORDS
from wmsched.toolchain.targets import meta_target
from wmsched.tune import construct_model as module
from wmsched.tune import latency, schedules
from wmsched.tune.construct_model import construct_model
from wmsched.tune.finish import CONSTRUCTED, MEASURED
from wmsched.tune.in_model_selection import database_of
from wmsched.tune.options import ModelOptions


@pytest.fixture(scope="module", autouse=True)
def one_process():
    """This process has run other tests, whose threads a copy of it would wait for; files are read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "usable_cores", lambda: 1)
        patch.setattr(module, "load", imported)
        yield


@pytest.fixture(scope="module", autouse=True)
def quick():
    """How long a model takes is not what is looked at."""
    with quick_timing():
        yield


def construct(name, out, **settings):
    return construct_model(ModelOptions(name=name, out=out, **({"finalists": 1} | settings)))


@pytest.fixture(scope="module")
def constructed(files, tmp_path_factory):
    """The small net, constructed; no test changes it."""
    out = tmp_path_factory.mktemp("constructed") / "net"
    return out, construct(files["net"], out)


def test_the_passes_of_a_build_run_once(files, tmp_path, monkeypatch):
    right, builds = pipeline.compile_module, []

    def counted(*given, **options):
        builds.append(right(*given, **options))
        return builds[-1]

    monkeypatch.setattr(pipeline, "compile_module", counted)
    found = construct(files["layers"], tmp_path / "net")
    assert len(builds) == 1 and found.library.exists()


def test_every_function_has_a_schedule_and_the_library_is_right(files, constructed):
    _, found = constructed
    assert found.tasks and {task.how for task in found.tasks} == {CONSTRUCTED}
    assert {task.trials for task in found.tasks} == {0}
    assert found.kept == "tuned" and not found.why and found.constructed > 0
    assert "untuned" not in found.seconds and found.seconds["eager"] > 0
    assert off_from_torch(found.library, files["net"]) < latency.TOLERANCE


def test_a_model_of_gensor_s_schedules_is_right_and_another_one(files, constructed, tmp_path):
    found = construct(files["net"], tmp_path / "net", traversal="gensor", choice="agreement")
    assert {task.how for task in found.tasks} == {CONSTRUCTED}
    assert off_from_torch(found.library, files["net"]) < latency.TOLERANCE
    traces = [
        {str(record.trace) for record in database_of(out / "constructed").get_all_tuning_records()}
        for out in (tmp_path / "net", constructed[0])
    ]
    assert traces[0] != traces[1]


def test_constructed_records_stand_apart_and_are_no_measurements(constructed):
    out, found = constructed
    assert not (out / RECORDS).exists() or not (out / RECORDS).read_text().strip()
    assert not (out / "best").exists()
    stored = database_of(out / "constructed").get_all_tuning_records()
    assert len(stored) == len(found.tasks)
    assert all(is_constructed(record) and float(record.run_secs[0]) >= RANK_SECONDS for record in stored)


def test_the_folder_loads_as_a_tuned_one_does(files, constructed):
    out, _ = constructed
    model = imported(files["net"])
    (data,) = model.inputs.values()
    got = wmsched.load(out)(data)
    assert torch.allclose(got, model.eager(), atol=1e-4)
    assert json.loads((out / "report.json").read_text())["construct_seconds"] >= 0


def test_a_search_goes_on_in_the_folder_and_its_measured_schedules_win(files, tmp_path):
    out = tmp_path / "net"
    construct(files["net"], out)
    _, tuned = run(files["net"], out, trials=2, resume=True)
    how = {task.name: task.how for task in tuned.tasks}
    assert sorted(how.values()).count(MEASURED) == 2 and CONSTRUCTED in how.values()
    assert tuned.seconds["tuned"] > 0
    again = construct(files["net"], out)
    assert again.seconds["tuned"] > 0
    best = {len(record.run_secs or ()) for record in database_of(out / "best").get_all_tuning_records()}
    assert best  # what was measured is in it still


def test_a_model_without_a_trial_has_no_plain_loops(files, tmp_path):
    """One trial of five: the other functions are constructed."""
    _, found = run(files["net"], tmp_path / "net", trials=1)
    assert [task.how for task in found.tasks].count(CONSTRUCTED) == len(found.tasks) - 1
    assert "off by" not in found.why and "failed" not in found.why


class Odd(nn.Module):
    """Operators of every kind: products, sums, sorting, gathering, scans, pooling, reshapes, comparisons."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.dense = nn.Embedding(20, 8), nn.Linear(8, 8)
        self.conv = nn.ConvTranspose1d(8, 4, 3)

    def forward(self, x):
        y = self.dense(self.embed(x))
        z = torch.softmax(y @ y.transpose(1, 2), -1) @ y
        z = torch.cumsum(z, 1).sort(2).values
        z = torch.where(z > 0, z, z.mean(1, keepdim=True))
        return self.conv(torch.cat([z, y], 1).transpose(1, 2)).mean(2), z.argmax(1)


def test_operators_of_every_kind_are_not_left_as_plain_loops(tmp_path):
    torch.manual_seed(0)
    name = exported(tmp_path, "odd.pt2", Odd(), torch.randint(0, 20, (2, 6)))
    found = construct(name, tmp_path / "odd")
    assert found.kept == "tuned"
    assert off_from_torch(found.library, name) < latency.TOLERANCE


def test_views_alone_simply_run(files, tmp_path):
    found = construct(files["view"], tmp_path / "view")
    assert found.kept == "tuned" and off_from_torch(found.library, files["view"]) == 0


def test_builds_that_fail_at_random_still_end_with_a_library(files, tmp_path, monkeypatch, capsys):
    rng, build = random.Random(3), objects.tirx.build
    failed = []

    def unlucky(module, target, *rest, **named):
        (name,) = (str(f.attrs["global_symbol"]) for f in module.functions.values())
        # a function that fails as plain loops too ends the build, and threads change the order of the draws
        if name not in failed and len(failed) < 4 and rng.random() < 0.5:
            failed.append(name)
            raise tvm.error.InternalError("out of luck")
        return build(module, target, *rest, **named)

    monkeypatch.setattr(objects.tirx, "build", unlucky)
    found = construct(files["net"], tmp_path / "net")
    assert failed and found.kept == "tuned"
    assert off_from_torch(found.library, files["net"]) < latency.TOLERANCE
    assert "out of luck" in capsys.readouterr().out


def test_a_function_that_no_schedule_compiles_of_is_told_and_ends_it(files, tmp_path, monkeypatch):
    def never(*given, **named):
        raise tvm.error.InternalError("no code today")

    monkeypatch.setattr(objects.tirx, "build", never)
    monkeypatch.setattr(schedules, "MAX_FAILURES", 30)
    with pytest.raises(WmschedError, match=r"no code today|builds failed"):
        construct(files["layers"], tmp_path / "net")
    assert not (tmp_path / "net" / "model.so").exists()


def test_a_library_that_computes_something_else_is_not_written(files, tmp_path, monkeypatch):
    monkeypatch.setattr(Model, "reference", lambda self: ([torch.full((16, 32), 7.0)], "a liar"))
    with pytest.raises(WmschedError, match=r"outputs are off by .*compared with a liar"):
        construct(files["layers"], tmp_path / "net")
    assert not (tmp_path / "net" / "model.so").exists()


def test_rules_schedule_what_has_no_schedule():
    model_target = meta_target(None)
    from tvm import relax

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 30, 20), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.softmax(x))
            out = builder.emit_output(relax.op.exp(relax.op.permute_dims(y, [0, 2, 1])))
        builder.emit_func_output(out)
    prepared = pipeline.prepare(builder.get(), model_target)
    told: dict[str, str] = {}
    with model_target:
        ruled = apply_default_schedules(lambda name, rule: bool(told.update({name: rule})) or True)(prepared)
    assert told and all(told.values())
    data = tvm.runtime.tensor(torch.randn(4, 30, 20).numpy())
    got = [
        relax.VirtualMachine(pipeline.compile_module(each, model_target), tvm.cpu())["main"](data).numpy()
        for each in (prepared, ruled)
    ]
    assert abs(got[0] - got[1]).max() < 1e-5


def test_compile_on_the_command_line(files, tmp_path):
    out = tmp_path / "net"
    done = CliRunner().invoke(app, ["compile", files["layers"], "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "none was timed" in done.output and "constructed" in done.output and (out / "model.so").is_file()
    again = CliRunner().invoke(
        app, ["tune", files["layers"], "--trials", "0", "--out", str(tmp_path / "zero")]
    )
    assert again.exit_code == 0 and "none was timed" in again.output
    assert CliRunner().invoke(app, ["tune", "resnet50/6", "--trials", "0"]).exit_code == 2


def test_compile_from_a_script_needs_no_folder(capsys):
    net, data = Layers().eval(), torch.randn(16, 64)
    fast = wmsched.compile(net, (data,))
    with torch.inference_mode():
        assert torch.allclose(fast(data), net(data), atol=1e-4)
    with pytest.raises(ValueError, match="out='tuned'"):
        wmsched.compile(net, (data,), trials=3)
