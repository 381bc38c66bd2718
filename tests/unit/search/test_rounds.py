"""Into how many rounds a task's share of the measurements is divided."""

from __future__ import annotations

import pytest

from wmsched.search.budget import default_rounds, round_size


@pytest.mark.parametrize(
    ("share", "rounds"),
    [(1, 1), (16, 1), (31, 1), (32, 2), (64, 4), (100, 4), (256, 4), (257, 5), (1000, 16)],
)
def test_rounds_are_four_where_they_can_be(share: int, rounds: int) -> None:
    assert default_rounds(share) == rounds
    size = round_size(share)
    assert (rounds - 1) * size < share <= rounds * size
    assert size <= 64 and (rounds == 1 or size >= 16)


def test_rounds_can_be_asked_for() -> None:
    assert [round_size(64, rounds) for rounds in (1, 3, 64, 100)] == [64, 22, 1, 1]
    assert round_size(0) == 1
