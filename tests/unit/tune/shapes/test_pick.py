"""Which shape inputs are run in, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from wmsched.tune.shapes.pick import Picker, cut, padded


def specs(*shapes):
    return [
        [{"name": name, "shape": list(shape), "dtype": "int64"} for name, shape in one.items()]
        for one in shapes
    ]


LENGTHS = specs(*({"ids": (1, n), "mask": (1, n)} for n in (128, 64, 16)))
GROUP = {"inputs": [[0, 1], [1, 1]], "outputs": [[0, 1, 1, 1, 0]], "masks": [1], "why": ""}


def picker(**changed) -> Picker:
    return Picker(Path("tuned"), LENGTHS, [GROUP | changed])


def given(length: int, other: int | None = None):
    return np.ones((1, length), np.int64), np.ones((1, other or length), np.int64)


def test_inputs_run_in_their_own_shape_or_the_least_that_holds_them() -> None:
    pick = picker()
    assert [pick(given(n)) for n in (128, 64, 16, 15, 17, 65, 100)] == [0, 1, 2, 2, 1, 0, 0]
    assert pick.cuts(given(17)) == [[0, 1, 17]]


def test_where_padding_changes_the_result_only_the_shapes_themselves_run() -> None:
    pick = picker(why="what the padding holds changes the result")
    assert pick(given(64)) == 1
    with pytest.raises(ValueError, match=r"tuned: .*ids \[1, 63\].*what the padding holds.*--shape ids=1,63"):
        pick(given(63))


def test_what_fits_in_none_is_refused_with_the_shapes_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"ids \[1, 129\].*ids \[1, 16\].*--shape ids=1,129 --shape mask=1,129"
    ):
        picker()(given(129))
    with pytest.raises(ValueError, match="another rank"):
        picker()((np.ones(16), np.ones(16)))
    with pytest.raises(
        ValueError, match=r"vary together, and are 20 and 21|vary together, and are 21 and 20"
    ):
        picker()(given(20, 21))
    with pytest.raises(ValueError, match="one extent of axis 0"):
        Picker(Path("t"), specs({"x": (4, 8)}, {"x": (4, 6)}), [GROUP | {"inputs": [[0, 1]], "masks": []}])(
            [np.ones((3, 7))]
        )


def test_a_mask_that_begins_with_zeros_is_refused_where_it_would_be_padded() -> None:
    ids, mask = given(20)
    mask[0, 0] = 0
    with pytest.raises(ValueError, match="mask begins with zeros along axis 1"):
        picker()((ids, mask))
    ids, mask = given(64)
    mask[0, 0] = 0
    assert picker()((ids, mask)) == 1


def test_outputs_that_would_have_a_part_of_an_element_are_refused() -> None:
    pick = picker(outputs=[[0, 1, 1, 2, 0]])
    assert pick.cuts(given(18)) == [[0, 1, 9]]
    with pytest.raises(ValueError, match="do not follow 19"):
        pick(given(19))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_padding_is_zeros_behind_and_is_cut_off_again(kind) -> None:
    value = kind(np.arange(1, 7).reshape(2, 3))
    wide = padded(value, (2, 5))
    assert type(wide) is type(value) and wide.dtype == value.dtype
    assert wide.tolist() == [[1, 2, 3, 0, 0], [4, 5, 6, 0, 0]]
    (found, other) = cut([wide, wide], [[0, 1, 3]])
    assert found.tolist() == value.tolist() and other is wide
    found[:] = 0
    assert wide.tolist()[0][0] == 1  # memory of its own
    assert padded(value, (2, 3)) is value
