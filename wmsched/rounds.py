"""Into how many rounds of search a task's measurements are divided."""

from __future__ import annotations

SMALL, ROUND = 16, 64  # a round's measurements: at least, where there are several, and AutoScheduler's number


def default_rounds(share: int) -> int:
    """How many rounds of search a task's `share` of the measurements is spread over, all of one size.

    A round's best are where the next one's search starts, so a few are worth having; each takes seconds. None
    has more than 64 measurements, AutoScheduler's own number, and where there are several none less than 16.
    """
    return max(-(-share // ROUND), min(4, share // SMALL), 1)


def round_size(share: int, rounds: int | None = None) -> int:
    """Measurements in each of `rounds` (by default `default_rounds`) that a task's `share` is spread over."""
    return max(1, -(-share // (rounds or default_rounds(share))))
