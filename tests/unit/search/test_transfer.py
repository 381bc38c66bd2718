"""Schedules of a program for a like one with other extents."""

from __future__ import annotations

from math import prod

from wmsched.search.decision_space import DecisionSpace
from wmsched.search.transfer import adapted, distance, erased


def trace(tile: list[int], *, innermost: int = 64, category: int = 0, kind: str = "matmul"):
    instructions = [
        ["GetSBlock", [], [kind, "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1"]],
        ["SamplePerfectTile", ["l1"], [4, innermost], ["v2", "v3", "v4", "v5"]],
        ["Split", ["l1", "v2", "v3", "v4", "v5"], [1, 0], ["l6", "l7", "l8", "l9"]],
        ["SampleCategorical", [], [[1, 2, 4], [0.5, 0.25, 0.25]], ["v10"]],
    ]
    return [instructions, [[2, tile], [4, category]]]


def test_a_tile_keeps_its_inner_factors_and_its_outermost_takes_the_rest() -> None:
    space = DecisionSpace(trace([16, 1, 1, 1]))
    assert adapted(space, trace([4, 2, 1, 16], category=2)) == (1, 1, 1, 16, 2)
    assert adapted(space, trace([32, 2, 2, 1])) == (4, 2, 2, 1, 0)
    space = DecisionSpace(trace([384, 1, 1, 1]))
    assert adapted(space, trace([4, 2, 1, 16])) == (12, 2, 1, 16, 0)


def test_a_factor_that_does_not_divide_becomes_the_next_one_that_does() -> None:
    space = DecisionSpace(trace([12, 1, 1, 1]))
    row = adapted(space, trace([2, 4, 2, 8]))
    assert row == (1, 1, 2, 6, 0) and prod(row[:4]) == 12


def test_the_innermost_factor_stays_within_its_limit() -> None:
    space = DecisionSpace(trace([128, 1, 1, 1], innermost=16))
    assert adapted(space, trace([1, 1, 1, 16], innermost=16)) == (8, 1, 1, 16, 0)


def test_a_trace_of_other_instructions_is_none() -> None:
    assert adapted(DecisionSpace(trace([16, 1, 1, 1])), trace([16, 1, 1, 1], kind="conv2d")) is None


def test_programs_are_alike_without_their_numbers_and_near_by_how_many_are_equal() -> None:
    (one, a), (other, b), (third, c) = map(
        erased,
        ("for i0 in range(16): y1[768]", "for i0 in range(64): y2[768]", "for i0 in range(64): y1[3072]"),
    )
    assert one == other == third and a == (16, 768)
    assert distance(a, b) == 1 and distance(a, c) == 2 and distance(b, b) == 0
