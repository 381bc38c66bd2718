"""Into how many rounds `wmsched tune` divides a task's share of the measurements."""

from __future__ import annotations

import pytest

from wmsched.tune import default_rounds


@pytest.mark.parametrize(
    ("share", "rounds"),
    [(1, 1), (16, 1), (31, 1), (32, 2), (64, 4), (100, 4), (256, 4), (257, 5), (1000, 16)],
)
def test_rounds_are_four_where_they_can_be(share: int, rounds: int) -> None:
    assert default_rounds(share) == rounds
    size = -(-share // rounds)
    assert size <= 64 and (rounds == 1 or size >= 16)
