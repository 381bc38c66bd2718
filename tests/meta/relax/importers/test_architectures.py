"""Architectures that people tune, from torch.export through TVM's build to PyTorch's outputs; no search."""

from __future__ import annotations

import pytest
import torch
import tvm
from architectures import ARCHITECTURES

from wmsched.metaschedule import tasks as task_list
from wmsched.relax.importers.load import load
from wmsched.relax.passes import pipeline
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.latency import deviation, library_call
from wmsched.tune.prepare import SETTINGS, build_untuned, prepare_model

TARGET = tvm.target.Target(meta_host_target())
FEW = ("experts",)  # the others are slow together; test_transformers has four families


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in ARCHITECTURES]
)
def test_tvm_builds_it_and_computes_what_pytorch_does(name, tmp_path, caplog):
    torch.manual_seed(0)
    module, inputs = ARCHITECTURES[name]()
    with torch.inference_mode():
        torch.export.save(torch.export.export(module.eval(), inputs), tmp_path / "m.pt2")
    model = load(str(tmp_path / "m.pt2"))
    untuned = build_untuned(model, TARGET, tmp_path)
    prepared, _ = prepare_model(model, TARGET, dict.fromkeys(SETTINGS, True), tmp_path, untuned.outputs)
    assert task_list.tasks(prepared, TARGET)
    pipeline.compile_module(prepared, TARGET).export_library(str(tmp_path / "prepared.so"))
    outputs = library_call(tmp_path / "prepared.so", TARGET, list(model.inputs.values()))()
    off, allowed = deviation(outputs, untuned.outputs, model)
    assert off <= allowed
    assert [r.getMessage() for r in caplog.records if r.name == "wmsched" and r.levelname == "WARNING"] == []
