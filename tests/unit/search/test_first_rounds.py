"""First rounds are as small as lets every task have one."""

from __future__ import annotations

import math

import pytest

from wmsched.search.budget import FIRST_ROUNDS_SHARE, FirstRounds


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def rounds(tasks, seconds, *, size=8, start=0.3, each=0.7):
    """The rounds of a search of so many seconds, and how long they took, where one takes these seconds."""
    clock = Clock()
    first = FirstRounds(size, clock.now + seconds, clock)
    counts = []
    for fresh in range(tasks, 0, -1):
        counts.append(first.count(fresh))
        clock.now += start + each * counts[-1]
        first.took(counts[-1])
    return counts, clock.now - 100


def test_all_have_one_in_their_share_of_the_time():
    counts, took = rounds(50, 180)
    assert took < 180 * FIRST_ROUNDS_SHARE + 5
    assert min(counts) >= 1 and sum(counts) > 75


def test_slow_programs_get_fewer():
    slow, took = rounds(20, 180, each=4)
    assert took < 180 and sum(slow) < sum(rounds(20, 180)[0])


def test_where_there_is_time_they_are_whole():
    assert set(rounds(20, 600)[0]) == {8}


def test_too_short_a_search_has_one_each_as_far_as_it_goes():
    assert set(rounds(50, 10)[0][1:]) == {1}


def test_without_an_end_they_are_whole():
    assert FirstRounds(16).count(1000) == 16


@pytest.mark.parametrize("fresh", [0, 1])
def test_nothing_measured_in_no_time(fresh):
    """A clock that stands still, a round of which nothing was measured."""
    clock = Clock()
    first = FirstRounds(4, clock.now + 60, clock)
    first.took(0)
    assert first.count(fresh) == 4
    clock.now = math.nextafter(100.0, 101)
    first.took(3)
    assert first.count(fresh) == 4
