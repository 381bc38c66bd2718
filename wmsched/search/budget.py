"""Measurement budget of a task: its rounds of search, and a shorter first round if time is short."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

MIN_ROUND, MAX_ROUND = 16, 64  # measurements: at least, if there are several rounds; AutoScheduler's number


def default_rounds(share: int) -> int:
    """Return the number of equal rounds that a task's `share` of the measurements is split into.

    Each round starts from the best of the one before, so several are useful; each costs seconds. A round has
    at most 64 measurements (AutoScheduler's number) and, if there are several, at least 16.
    """
    return max(-(-share // MAX_ROUND), min(4, share // MIN_ROUND), 1)


def round_size(share: int, rounds: int | None = None) -> int:
    """Return the measurements in each of `rounds` (default: `default_rounds`) of a task's `share`."""
    return max(1, -(-share // (rounds or default_rounds(share))))


# Size of first rounds, if the time may not suffice for all tasks.


FIRST_ROUNDS_SHARE = 0.6  # of the time limit, for all first rounds
ASSUMED_SECONDS = 1.0  # for a measurement with its part of the search, before the first one


class FirstRounds:
    """Sizes first rounds so that every task has one in time.

    A task without a round keeps its unscheduled loop nest, which takes 10 to 50 times as long as its first
    measured schedule. A second round of another function gains a few hundredths.

    Parameters
    ----------
    size : int
        Measurements of a round, if there is time.
    until : float
        End of the search on `clock`; infinite without a time limit.
    clock : callable () -> float
        Seconds.
    """

    def __init__(
        self, size: int, until: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.size, self._clock = size, clock
        self._from = clock()
        self._until = self._from + FIRST_ROUNDS_SHARE * (until - self._from)
        self._done = 0

    def count(self, fresh: int) -> int:
        """Return the measurements of the next first round, if `fresh` tasks still need one."""
        if math.isinf(self._until):
            return self.size
        now = self._clock()
        each = (now - self._from) / self._done if self._done else ASSUMED_SECONDS
        possible = (self._until - now) / max(fresh, 1) / max(each, 1e-9)
        return max(1, min(self.size, int(possible)))

    def took(self, done: int) -> None:
        """Record that `done` candidates were measured."""
        self._done += done
