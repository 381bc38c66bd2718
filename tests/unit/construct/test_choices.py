"""Final choices: what orders the best few anew, on numbers that are known."""

from __future__ import annotations

import numpy as np
import pytest
from construct_spaces import product

from wmsched.construct import Agreement, First, Smoothed, Spread
from wmsched.construct.graph import Graph

SPACE, WORKLOAD = product(16, 16, 8)
A = (1, 1, 4, 4, 1, 1, 4, 4, 1, 8, 0)  # the register tile 16 x 16
B = (1, 4, 1, 4, 1, 4, 1, 4, 1, 8, 0)  # 4 x 4
C = (1, 4, 2, 2, 1, 4, 2, 2, 1, 8, 0)  # 4 x 4
FOUND = [(b"a", [0, A]), (b"b", [0, B]), (b"c", [0, C])]


def graph(margins: dict, spreads: dict | None = None, otherwise: float = 0.0) -> Graph:
    def judge(schedules):
        found = [margins.get(row, otherwise) for _, row in schedules]
        return np.array(found), np.array([(spreads or {}).get(row, 0.0) for _, row in schedules])

    return Graph([SPACE], WORKLOAD, judge)


def order(found) -> str:
    return b"".join(key for key, _ in found).decode()


def test_the_first_stays_the_first() -> None:
    assert First()(FOUND, graph({})) == FOUND


def test_a_register_tile_with_two_good_schedules_beats_a_lonely_one() -> None:
    known = graph({A: 1.4, B: 1.2, C: 1.2})  # 1 against 2 * 2^(-1/7)
    assert order(Agreement()(FOUND, known)) == "bca"
    assert order(Agreement(top=2)(FOUND, known)) == "abc"
    assert order(Agreement()(FOUND, graph({A: 5.0, B: 1.2, C: 1.2}))) == "abc"
    assert order(Agreement()(FOUND, graph({A: np.nan, B: 1.2, C: 1.2}))) == "bca"


def test_a_schedule_among_bad_neighbours_falls_behind() -> None:
    bad = {tuple(row): -4.0 for _, row in graph({}).neighbours([0, A])}
    known = graph({**bad, A: 1.4, B: 1.2, C: 1.1})
    assert order(Smoothed()(FOUND, known)) == "bca"
    assert order(Smoothed(own=1.0)(FOUND, known)) == "abc"
    assert order(Smoothed(top=1)(FOUND, known)) == "abc"


def test_neighbours_that_cannot_be_read_do_not_count() -> None:
    unread = {tuple(row): np.nan for _, row in graph({}).neighbours([0, A])}
    assert order(Smoothed()(FOUND, graph({**unread, A: 1.4, B: 1.2, C: 1.1}))) == "abc"


def test_what_the_members_disagree_about_falls_behind() -> None:
    known = graph({A: 1.4, B: 1.2, C: 1.1}, {A: 0.5, C: 0.05, B: 0.1})
    assert order(Spread()(FOUND, known)) == "bca"
    assert order(Spread(weight=0.0)(FOUND, known)) == "abc"


@pytest.mark.parametrize("choice", [First(), Smoothed(), Agreement(), Spread()])
def test_nothing_to_choose_from(choice) -> None:
    assert choice([], graph({})) == []


@pytest.mark.parametrize("choice", [First(), Smoothed(top=2), Agreement(top=2), Spread(top=2)])
def test_a_choice_loses_and_invents_nothing(choice) -> None:
    assert sorted(order(choice(FOUND, graph({A: 0.0, B: 1.0, C: 2.0})))) == ["a", "b", "c"]
