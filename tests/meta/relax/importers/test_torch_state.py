"""Programs that change their buffers or inputs: buffers are states, and PyTorch's run starts anew."""

from __future__ import annotations

import logging

import torch
from built import TARGET, built
from torch import nn

from wmsched.relax.importers.load import load
from wmsched.tune.latency import difference
from wmsched.tune.prepare import build_untuned

DATA = torch.linspace(-1, 1, 12).view(3, 4)


class Counting(nn.Module):
    """Adds to what it is given how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.BatchNorm1d(4)
        self.layer.register_buffer("calls", torch.zeros(4))

    def forward(self, x):
        self.layer.calls.add_(1)
        return self.layer(x) + self.layer.calls


class Doubling(nn.Module):
    def forward(self, x):
        x.mul_(2)
        return x + 1


def loaded(folder, module: nn.Module):
    torch.export.save(torch.export.export(module.eval(), (DATA.clone(),)), folder / "m.pt2")
    return load(str(folder / "m.pt2"))


def test_buffers_that_change_are_inputs_and_outputs(tmp_path, caplog):
    module = Counting()
    model = loaded(tmp_path, module)
    (state,) = model.states
    assert (state.name, state.input, state.output, state.start) == ("layer.calls", 0, 0, None)
    with caplog.at_level(logging.WARNING, "wmsched"):
        untuned = build_untuned(model, TARGET, tmp_path)
    assert [record for record in caplog.records if record.name == "wmsched"] == []
    with torch.inference_mode():
        wanted = [torch.ones(4), module.layer(DATA) + 1]
    assert all(difference(found, wanted) < 1e-6 for found in (untuned.outputs, model.eager(), model.eager()))


def test_a_build_after_pytorch_s_run_begins_as_the_first_one(tmp_path):
    """TVM's tensors are not the very buffers that PyTorch changes."""
    module = Counting()
    model = loaded(tmp_path, module)
    with torch.inference_mode():
        wanted = [torch.ones(4), module.layer(DATA) + 1]
    for _ in range(2):
        model.eager()
    assert difference(built(tmp_path, model, *model.inputs.values()), wanted) < 1e-6


def test_an_input_that_is_changed_in_place_is_named_and_stays(tmp_path):
    model = loaded(tmp_path, Doubling())
    (note,) = model.notes
    assert "changes inputs in place (x)" in note
    assert all(difference(model.eager(), 2 * DATA + 1) < 1e-6 for _ in range(2))
    assert torch.equal(model.inputs["x"], DATA)


def test_a_model_in_evaluation_mode_changes_nothing(tmp_path):
    assert loaded(tmp_path, nn.Sequential(nn.BatchNorm1d(4), nn.Dropout())).notes == ()
