"""Steps that leave a program as it is are left out, and what refers to others' numbers still does."""

from __future__ import annotations

from wmsched.search.canonical import without_idle
from wmsched.search.diversity import signature


def test_a_stage_at_the_root_is_not_put_there() -> None:
    split = ["SP", 2, 0, 64, [4, 8], 1]
    assert without_idle([split, ["CR", 3], ["CR", 2]]) == [split]
    steps = [split, ["CA", 3, 2, 1], ["CR", 3]]
    assert without_idle(steps) is steps  # it was elsewhere
    assert without_idle([*steps, ["CR", 3]]) == steps


def test_stages_are_known_by_their_numbers_of_the_time() -> None:
    attached = ["CA", 3, 2, 1]
    # a cache before stage 3 makes it stage 4; one after stage 4 leaves it so
    kept = [attached, ["CHW", 3, "local"], ["CHR", 4, "shared", [5]], ["CR", 4]]
    assert without_idle(kept) == kept
    assert without_idle([attached, ["CHW", 3, "local"], ["CR", 3]]) == [attached, ["CHW", 3, "local"]]
    assert without_idle([attached, ["RF", 1, 0, 2], ["CR", 4]]) == [attached, ["RF", 1, 0, 2], ["CR", 4]]


def test_splits_that_others_follow_keep_their_places() -> None:
    first, second = ["SP", 2, 0, 64, [4, 8], 1], ["SP", 2, 4, 32, [2], 1]
    steps = [first, ["CR", 5], second, ["FSP", 3, 0, 2, 1], ["FFSP", 3, 1, [0, 2], 1, 1]]
    assert without_idle(steps) == [first, second, ["FSP", 3, 0, 1, 1], ["FFSP", 3, 1, [0, 1], 1, 1]]
    assert steps[3] == ["FSP", 3, 0, 2, 1]  # what was given stays


def test_they_make_no_family_of_their_own() -> None:
    split = ["SP", 2, 0, 64, [4, 8], 1]
    assert signature([split, ["CR", 3]]) == signature([split])
    assert signature([split, ["CA", 3, 2, 1], ["CR", 3]]) != signature([split, ["CA", 3, 2, 1]])
