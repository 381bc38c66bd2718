"""What several shapes of a model are asked for with."""

from __future__ import annotations

import pytest

from wmsched.base.errors import WmschedError
from wmsched.tune.shapes.choices import choices_of, label_of, option_of, parse_extents, variants


def test_extents_have_choices() -> None:
    assert parse_extents("1,16/64/128") == ((1,), (16, 64, 128))
    assert parse_extents("1,3,224,224") == ((1,), (3,), (224,), (224,))
    assert option_of("ids", parse_extents("1,16/64")) == "ids=1,16/64"
    assert choices_of({"ids": (1, (16, 64))}) == {"ids": ((1,), (16, 64))}


@pytest.mark.parametrize("text", ["", "1,", "1,16/", "0,3", "1,16/16", "1,a", "-1,3"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_extents(text)


@pytest.mark.parametrize("shape", [(1, ()), (1, (2, 2)), (0,), (1, (16, "64"))])
def test_what_is_no_shape_in_python_is_refused_with_an_example(shape) -> None:
    with pytest.raises(ValueError, match=r"\(1, \(16, 64, 128\)\)"):
        choices_of({"ids": shape})


def test_equal_choices_vary_together_and_others_are_combined() -> None:
    own = {
        "ids": parse_extents("1/8,16/64"),
        "mask": parse_extents("1/8,16/64"),
        "image": parse_extents("3,5"),
    }
    found = variants(own)
    assert [(one["ids"], one["mask"]) for one in found] == [
        ((8, 64), (8, 64)), ((8, 16), (8, 16)), ((1, 64), (1, 64)), ((1, 16), (1, 16))
    ]  # fmt: skip
    assert all(one["image"] == (3, 5) for one in found)


def test_without_a_choice_there_is_one_shape() -> None:
    assert variants({"data": parse_extents("1,3")}) == [{"data": (1, 3)}]
    assert variants({}) == [{}]


def test_too_many_shapes_are_refused_with_what_was_asked() -> None:
    with pytest.raises(WmschedError, match=r"a=1/2/3/4/5,1/2/3/4.*20 shapes.*16 are allowed"):
        variants({"a": parse_extents("1/2/3/4/5,1/2/3/4")})


def test_a_label_is_a_folder_s_name() -> None:
    inputs = [{"name": "serving/ids:0", "shape": [1, 16]}, {"name": "mask", "shape": [1, 16]}]
    assert label_of(inputs, ["serving/ids:0"]) == "serving_ids_0=1x16"
