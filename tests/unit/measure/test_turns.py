"""Two programs that are timed in turns on a machine that others disturb; no TVM."""

from __future__ import annotations

import math

import pytest

from wmsched.measure.turns import MAX_TURNS_FACTOR, agree, ratio, take_turns


def test_a_ratio_is_what_turns_and_undisturbed_times_both_say() -> None:
    assert ratio([(1.0, 0.9)] * 5) == pytest.approx(0.9)
    spell = [(1.0, 0.9), (2.0, 1.8), (2.0, 1.8), (2.0, 1.8), (1.0, 0.9)]
    assert ratio(spell) == pytest.approx(0.9) and agree(spell)
    stalls = [(1.0, 1.1), (5.0, 1.1), (5.0, 1.1), (5.0, 1.1), (1.0, 1.1)]  # the median alone says 0.22
    assert ratio(stalls) == pytest.approx(1.1) and not agree(stalls)
    assert math.isnan(ratio([(0.0, 1.0)])) and agree([])


def test_more_turns_are_taken_while_two_estimates_differ() -> None:
    assert len(take_turns(lambda number: [(1.0, 0.9)], 4)) == 4
    noisy = take_turns(lambda number: [(1.0, 0.9), (5.0 if number % 4 else 1.0, 1.1)], 4)
    assert len(noisy) == 4 * MAX_TURNS_FACTOR
    assert (
        len(take_turns(lambda number: [(1.0, 0.9), (5.0 if number % 4 else 1.0, 1.1)], 4, compared=[0])) == 4
    )
    assert take_turns(lambda number: [], 2) == [[], []]
