"""Shapes of one model share its states: each call goes on where the last one ended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wmsched.base.errors import WmschedError
from wmsched.tune.shapes.padding import unpadded
from wmsched.tune.shapes.parts import Parts
from wmsched.tune.shapes.several import refuse_unlike

SPECS = [[{"name": "ids", "shape": [1, length], "dtype": "int64"}] for length in (4, 1)]


class Kept:
    """A list of tokens as a state."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def share(self, other: Kept) -> None:
        self.tokens = list(other.tokens)


class Model:
    """A shape's model that appends what it is given."""

    def __init__(self, folder: Path) -> None:
        self.kept = Kept()

    def __call__(self, ids: np.ndarray) -> list[int]:
        self.kept.tokens += ids[0].tolist()
        return list(self.kept.tokens)


def parts(**more) -> Parts:
    shapes = [{"folder": str(k), "inputs": specs} for k, specs in enumerate(SPECS)]
    padding = unpadded(SPECS, "it keeps states")
    return Parts(Path("m"), {"shapes": shapes, "padding": padding, **more}, Model)


def test_a_prompt_in_chunks_and_single_tokens_are_one_text() -> None:
    found = parts(states=[{"name": "tokens"}])
    assert found([np.array([[1, 2, 3, 4]])]) == [1, 2, 3, 4]
    assert found([np.array([[5]])]) == [1, 2, 3, 4, 5]
    assert found([np.array([[6, 7, 8, 9]])]) == [*range(1, 10)]
    with found.state() as kept:
        assert kept.tokens == [*range(1, 10)]
        kept.tokens.clear()
    assert found([np.array([[7]])]) == [7]


def test_inputs_are_not_padded() -> None:
    with pytest.raises(ValueError, match="axis 1 of ids cannot be padded: it keeps states"):
        parts(states=[{"name": "tokens"}])([np.array([[1, 2]])])


def test_a_model_without_states_has_none_to_reset() -> None:
    with pytest.raises(TypeError, match="the model has no states"), parts().state():
        pass


def test_a_state_has_one_shape_in_all() -> None:
    described = [{"model": "m.onnx", "states": [{"name": "past", "shape": [1, k]}]} for k in (8, 16)]
    with pytest.raises(
        WmschedError, match=r"m.onnx: its state past is \[1, 8\] in one --shape and \[1, 16\]"
    ):
        refuse_unlike(described[0], described)
    refuse_unlike(described[0], described[:1])
