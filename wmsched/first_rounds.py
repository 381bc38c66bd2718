"""How many measurements a task's first round has, where the time may not do for all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

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
