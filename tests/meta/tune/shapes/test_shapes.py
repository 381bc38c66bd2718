"""Several shapes in one run: one folder and database, a library for each, one function of all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import programs as P
import pytest
import torch
from rich.console import Console
from torch import nn
from tuning_models import exported, made_up, quick_timing, records, small

import wmsched
from wmsched.base.errors import WmschedError
from wmsched.metaschedule.tasks import Task
from wmsched.schedules import database as meta_database
from wmsched.schedules.database import mean
from wmsched.tune import in_model_selection, prepare
from wmsched.tune.folder import shapes_of
from wmsched.tune.options import ModelOptions
from wmsched.tune.shapes import several, tune_shapes, tuning, variants
from wmsched.tune.tune_model import tune_model

SHAPES = {"x": ((8, 4), (16,))}


class Rows(nn.Module):
    """A dense layer of each row, and its sum."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(16, 12)

    def forward(self, x):
        y = torch.relu(self.dense(x))
        return {"rows": y, "sum": y.sum(1)}


@pytest.fixture(scope="module", autouse=True)
def quick():
    """How long a model takes is not what is looked at."""
    with quick_timing():
        yield


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> str:
    torch.manual_seed(0)
    dim = torch.export.Dim("rows", min=2, max=64)
    folder = tmp_path_factory.mktemp("rows")
    return exported(folder, "rows.pt2", Rows(), torch.randn(6, 16), dynamic={"x": {0: dim}})


def asked(name: str, out: Path, shapes=SHAPES, **more) -> ModelOptions:
    return ModelOptions(
        name=name,
        out=out,
        variants=variants(shapes),
        **({"cost_model": "random", "seed": 1, "finalists": 1} | more),
    )


def tuned(name: str, out: Path, shapes=SHAPES, **more):
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    found = tune_shapes(asked(name, out, shapes, **more), console=console, measurer=made_up(), strategy=small)
    return console.export_text(), found


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    """A search that is stopped while the second shape is built, and then resumed."""
    out = tmp_path_factory.mktemp("tuned") / "rows"
    with pytest.MonkeyPatch.context() as patch:
        whole, calls = tuning._finish, []

        def stopped(run, part, *rest):
            calls.append(part.label)
            if len(calls) == 2:
                raise KeyboardInterrupt
            whole(run, part, *rest)

        patch.setattr(tuning, "_finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            tuned(rows, out, trials=6)
        with pytest.raises(WmschedError, match="stopped goes on with --resume"):
            wmsched.load(out)
    before = (out / "database_tuning_record.json").read_bytes()
    said, found = tuned(rows, out, trials=6, resume=True)
    assert "has its 6 trials already" in said
    assert (out / "database_tuning_record.json").read_bytes() == before
    return out, found


def test_one_run_leaves_one_database_and_a_library_for_each_shape(folder):
    out, found = folder
    assert len(records(out)) == 6
    assert list(found.parts) == ["x=8x16", "x=4x16"]
    assert [one["folder"] for one in shapes_of(out)] == ["shapes/x=8x16", "shapes/x=4x16"]
    told = json.loads((out / "report.json").read_text())["shapes"]
    assert sum(one["trials"] for one in told.values()) == 6 and all(one["trials"] for one in told.values())
    for one in shapes_of(out):
        assert wmsched.load(out / one["folder"]).inputs == one["inputs"]
    assert not list(out.rglob(".build-*"))


def test_the_model_runs_the_shape_of_its_inputs_and_pads_between(folder, rows):
    model, torchs = wmsched.load(folder[0]), torch.export.load(rows).module()
    assert model.shapes == [{"x": (8, 16)}, {"x": (4, 16)}]
    for count in (8, 4, 7, 3, 2):
        x = torch.randn(count, 16)
        ours, theirs = model(x), torchs(x)
        assert ours["rows"].shape == (count, 12) and ours["sum"].shape == (count,)
        assert torch.allclose(ours["rows"], theirs["rows"], atol=1e-5)
        assert torch.allclose(ours["sum"], theirs["sum"], atol=1e-5)
        assert isinstance(model(x=x.numpy())["rows"], np.ndarray)
    with pytest.raises(ValueError, match=r"x \[9, 16\].*x \[8, 16\]; x \[4, 16\].*--shape x=9,16"):
        model(torch.randn(9, 16))
    with pytest.raises(TypeError, match="x is a list"):
        model([1.0])
    with pytest.raises(ValueError, match="float64"):
        model(np.zeros((3, 16)))


def test_a_folder_stays_the_model_s(folder, rows):
    out, _ = folder
    with pytest.raises(WmschedError, match="choose another --out"):
        tune_model(ModelOptions(name=rows, out=out, resume=True, shapes={"x": (8, 16)}))
    described = [{"hash": one["hash"], "inputs": one["inputs"]} for one in shapes_of(out)]
    held = json.loads((out / "model.json").read_text())["hash"]
    more = {"hash": "other", "inputs": [{"name": "x", "shape": [2, 16], "dtype": "float32"}]}
    assert several.owner(out, [*described, more])["hash"] == held  # a shape more is still this model
    assert several.owner(out, [more])["hash"] != held


def test_equal_functions_are_one_task_and_others_keep_names_of_their_own():
    mod, other = P.module(P.matmul(16)), P.module(P.matmul(32))
    first, second = [Task("a", mod, 2)], [Task("a", other, 1), Task("b", mod, 3)]
    found = tuning.distinct([first, second])
    assert [(task.name, task.weight) for task in found] == [("a", 5), ("a@2", 1)]
    assert first[0].weight == 2


class Sides(nn.Module):
    """A dense layer of rows, and of a side whose shape is one in all shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(16, 12)

    def forward(self, x, side):
        return self.dense(x), torch.relu(self.dense(side))


def test_records_of_a_function_of_several_shapes_are_corrected_once(tmp_path, monkeypatch):
    torch.manual_seed(0)
    dim = torch.export.Dim("rows", min=2, max=64)
    inputs = torch.randn(6, 16), torch.randn(5, 16)
    name = exported(tmp_path, "sides.pt2", Sides(), *inputs, dynamic={"x": {0: dim}, "side": None})
    corrected = []

    def doubtful(programs):
        """Programs whose best record is not of a second, as their time in the model would be."""
        found = {k: 1.0 / mean(one.records[0].run_secs) for k, one in enumerate(programs)}
        corrected.append({k: factor for k, factor in found.items() if not 0.5 < factor < 2})
        return corrected[-1]

    monkeypatch.setattr(in_model_selection, "doubtful", doubtful)
    out = tmp_path / "tuned"
    tuned(name, out, SHAPES, trials=8)
    assert corrected[0] and len(corrected) == 2
    lines = [json.loads(line) for line in (out / meta_database.RECORDS).read_text().splitlines()]
    best = {}
    for place, (_, seconds, *_) in lines:
        value = mean([float(one) for one in seconds])
        best[place] = min(best.get(place, value), value)
    assert best and all(0.9 < value < 1.1 for value in best.values())


def test_what_may_differ_may_differ_in_every_shape(rows, tmp_path, monkeypatch):
    class Seen(Exception):
        pass

    def prepared(*_, allow_different=False, **__):
        raise Seen(allow_different)

    monkeypatch.setattr(prepare, "prepare_model", prepared)
    for allowed in (True, False):
        with pytest.raises(Seen, match=str(allowed)):
            tuned(rows, tmp_path / f"{allowed}", trials=1, allow_different=allowed)
