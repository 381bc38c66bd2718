"""Into how many rounds of search a task's measurements are divided."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

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


# How many measurements a task's first round has, where the time may not do for all of them.


SHARE = 0.6  # of the time that there is, for all first rounds
USUAL = 1.0  # seconds a measurement, its part of the search with it, before there has been any


class FirstRounds:
    """So few that each task has one in time: a function without a schedule is a plain nest of loops.

    Such a nest takes ten times as long as the first schedule that is measured, or fifty, where a second round
    of another function gains a few hundredths.

    Parameters
    ----------
    size : int
        Measurements of a round where there is time.
    until : float
        When the search ends, as `clock` says it; infinite for one that is not timed.
    clock : callable () -> float
        Seconds.
    """

    def __init__(
        self, size: int, until: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.size, self._clock = size, clock
        self._from = clock()
        self._until = self._from + SHARE * (until - self._from)
        self._done = 0

    def count(self, fresh: int) -> int:
        """Measurements of the next first round, one of `fresh`."""
        if math.isinf(self._until):
            return self.size
        now = self._clock()
        each = (now - self._from) / self._done if self._done else USUAL
        possible = (self._until - now) / max(fresh, 1) / max(each, 1e-9)
        return max(1, min(self.size, int(possible)))

    def took(self, done: int) -> None:
        """So many were measured."""
        self._done += done
