"""Decoders keep their caches between calls: each token's logits are those of the whole sequence anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from built import TARGET
from decoders import ROWS, Static, exported, growing_onnx, kept, logits_of, static_onnx
from tvm import relax

from wmsched.base.errors import UnknownName, WmschedError
from wmsched.relax.importers.load import load
from wmsched.relax.state.in_place import in_place
from wmsched.tune.latency import difference
from wmsched.tune.prepare import build_untuned

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def written(model) -> int:
    """How many states are written where they lie."""
    found = []
    relax.analysis.post_order_visit(
        in_place(model.module, TARGET)["main"],
        lambda node: found.append(node) if "call_tir_inplace" in str(getattr(node, "op", "")) else None,
    )
    return len(found)


def static_call(model, place: int):
    return model(np.array([[TOKENS[place]]]), np.array([place]))


@pytest.mark.parametrize("writes", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_program_of_pytorch_s_keeps_the_buffers_that_it_changes(tmp_path, writes) -> None:
    program = load(exported(tmp_path / "m.pt2"))
    assert [state.name for state in program.states] == ["keys", "values", "steps"] and not program.notes
    assert written(program) == 2  # a counter is a sum, and no rows of it are written
    model = kept(tmp_path / "out", program, writes=writes)
    assert [spec["name"] for spec in model.inputs] == ["ids", "place"]
    before = model.kept._tensors[0].data_ptr() if writes else 0
    for turn in range(2):
        for place in range(ROWS):
            logits, steps = static_call(model, place)
            assert np.allclose(logits[0, 0, 0], logits_of(TOKENS[: place + 1]), atol=1e-4)
            assert steps == 6 + place  # a buffer starts with what the module had
        model.reset() if turn == 0 else None
    assert {name: value.shape for name, value in model.state().items()} == {
        "keys": (1, 1, ROWS, 8), "values": (1, 1, ROWS, 8), "steps": (1,)
    }  # fmt: skip
    if writes:
        first = model.kept._tensors[0].data_ptr()
        static_call(model, 0)
        assert model.kept._tensors[0].data_ptr() == first and before


def test_tensors_continue_what_arrays_began(tmp_path) -> None:
    model, module = kept(tmp_path / "out", load(exported(tmp_path / "m.pt2"))), Static()
    for place in range(4):
        given = torch.tensor([[TOKENS[place]]]), torch.tensor([place])
        found = model(*given) if place % 2 else model(*(one.numpy() for one in given))
        for one, other in zip(found, module(*given)):
            assert torch.allclose(torch.as_tensor(one), other, atol=1e-4)


def test_an_onnx_decoder_with_positions_is_written_in_place(tmp_path) -> None:
    model = load(static_onnx(tmp_path / "m.onnx"))
    assert [(state.name, state.output) for state in model.states] == [
        ("past_key_values.0.key", 1), ("past_key_values.0.value", 2)
    ]  # fmt: skip
    assert written(model) == 2
    tuned = kept(tmp_path / "out", model)
    for place in range(ROWS):
        assert np.allclose(static_call(tuned, place)[0, 0], logits_of(TOKENS[: place + 1]), atol=1e-4)
    halfway = tuned.state()
    tuned.reset()
    assert not any(value.any() for value in tuned.state().values())
    tuned.reset(halfway)
    assert np.allclose(static_call(tuned, ROWS - 1)[0, 0], logits_of(TOKENS), atol=1e-4)


def test_an_onnx_decoder_that_appends_keeps_its_last_rows(tmp_path) -> None:
    """Padding is in front, under the mask; what is beyond the window is forgotten."""
    past = {"past_key_values.*": (1, 5, 8), "attention_mask": (1, 6)}
    model = load(growing_onnx(tmp_path / "m.onnx"), past)
    assert [state.axis for state in model.states] == [1, 1] and written(model) == 0
    reference, whose = model.reference()
    if whose == "onnxruntime":
        assert difference(build_untuned(model, TARGET, tmp_path).outputs, reference) < 1e-5
    tuned = kept(tmp_path / "out", model)
    for place in range(9):
        mask = np.array([[int(row >= 5 - place) for row in range(6)]])
        logits = tuned(np.array([[TOKENS[place]]]), mask)
        wanted = logits_of(TOKENS[max(0, place - 5) : place + 1])
        assert np.allclose(logits[0, 0], wanted, atol=1e-4)


def test_states_are_plain_inputs_where_that_is_asked_for(tmp_path) -> None:
    path = static_onnx(tmp_path / "m.onnx")
    assert load(path, states=["none"]).states == ()
    (state,) = load(path, states=["past_key_values.0.value=2"]).states
    assert (state.input, state.output) == (3, 2)
    with pytest.raises(UnknownName, match=r"has no output logit; it has logits, present\.0\.key"):
        load(path, states=["past_key_values.0.key=logit"])
    with pytest.raises(WmschedError, match=r"cannot be the next call's .* is wanted"):
        load(path, states=["past_key_values.0.key=logits"])


def test_a_state_that_is_read_as_it_was_is_not_written_in_place(tmp_path) -> None:
    class Old(Static):
        def forward(self, ids, place):
            before = self.keys.sum() * 1
            return super().forward(ids, place)[0] + before

    given = torch.tensor([[1]]), torch.tensor([3])
    torch.export.save(torch.export.export(Old().eval(), given), tmp_path / "m.pt2")
    model = load(str(tmp_path / "m.pt2"))
    assert len(model.states) == 3 and written(model) == 1  # the values alone


def test_values_and_names_of_states_are_checked(tmp_path) -> None:
    model = kept(tmp_path / "out", load(static_onnx(tmp_path / "m.onnx")))
    with pytest.raises(TypeError, match=r"no state keys; it has past_key_values\.0\.key"):
        model.reset({"keys": np.zeros(1)})
    with pytest.raises(ValueError, match=r"is float64 \[1\]; the model was tuned for float32 \[1, 12, 8\]"):
        model.reset({"past_key_values.0.key": np.zeros(1)})
