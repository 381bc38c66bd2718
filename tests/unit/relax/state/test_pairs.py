"""Which output is which input of the next call: the usual names of decoders' caches, and options."""

from __future__ import annotations

import pytest

from wmsched.base.errors import UnknownName, WmschedError
from wmsched.relax.importers.shapes import by_patterns
from wmsched.relax.state.pairs import Pair, pairs_of


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.3.decoder.value", "present.3.decoder.value"),
        ("past_0", "present_0"),
        ("past_key_0", "present_key_0"),
        ("past_key_values_1", "present_key_values_1"),
    ],
)
def test_usual_names_are_found(past: str, present: str) -> None:
    assert pairs_of("m", ["ids", past], ["logits", present]) == [Pair(1, 1)]
    assert pairs_of("m", ["ids", past], ["logits", present + "0"]) == []


def test_names_that_only_begin_alike_are_no_pair() -> None:
    assert pairs_of("m", ["past", "pasta"], ["present", "presenta"]) == []


def test_options_replace_names() -> None:
    inputs, outputs = ["ids", "past_0", "cache"], ["logits", "present_0", "new"]
    assert pairs_of("m", inputs, outputs, ["cache=new"]) == [Pair(2, 2)]
    assert pairs_of("m", inputs, outputs, ["cache=2", "past_0=1"]) == [Pair(2, 2), Pair(1, 1)]
    assert pairs_of("m", inputs, outputs, ["none"]) == []


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        (["cache"], WmschedError, "--state cache=new"),
        (["caches=new"], UnknownName, "m has no input caches; it has ids, cache"),
        (["cache=3"], UnknownName, "m has no output 3; it has logits, new, or numbers from 0 to 1"),
        (["cache=new", "cache=0"], WmschedError, "is in another --state of m"),
    ],
)
def test_what_is_no_pair_is_refused(asked, error, said) -> None:
    with pytest.raises(error, match=said):
        pairs_of("m", ["ids", "cache"], ["logits", "new"], asked)


def test_a_shape_may_be_of_a_pattern_and_a_name_goes_before() -> None:
    known = ["ids", "past.0.key", "past.1.key"]
    asked = {"past.*": (1, 2), "past.1.key": (3, 4)}
    assert by_patterns(asked, known) == {"past.0.key": (1, 2), "past.1.key": (3, 4)}
    assert by_patterns({"lost.*": (1,)}, known) == {"lost.*": (1,)}  # for the error that names it
