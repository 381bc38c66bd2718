"""A program that others are timed beside, so that what else a shared machine does falls out of the ratio.

No TVM here: what a timing is comes from `placements` and `meta_places`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median

from wmsched.measure.clock_probe import ClockProbe

FLIP = 1.1  # a reference whose two times differ by more was disturbed in between: the timing is repeated,
AGAIN = 3  # so many times a program
TIMINGS = 3  # of a new reference
CALLS, CALLS_SECONDS = 10, 0.01  # of the reference each time: so many, fewer if they take longer
MOST_SECONDS = 0.05  # a call of a slower program lasts long enough to see both kinds of spell

#: Called with a number of calls, the seconds of each; it may make another number of them.
Clock = Callable[[int], Sequence[float]]


class Lost(Exception):
    """The reference cannot be timed any more."""


class Reference:
    """A program that was timed before, whose time at full speed is known.

    Parameters
    ----------
    clock : callable
        Times the program now.
    base : float
        Seconds it takes at full speed, as far as that was seen.
    best : float
        The least cost that a program timed beside it has had, seconds.
    """

    def __init__(self, clock: Clock, base: float, best: float = math.inf) -> None:
        self.clock, self.base, self.best = clock, base, best
        self._left = AGAIN
        self._last: float | None = None  # its time just now

    @classmethod
    def first(cls, clock: Clock, pulse: ClockProbe) -> Reference | None:
        """A program that nothing was timed beside before; None if it is too slow to be one."""
        once = paced(clock)
        if not 0.0 < once <= MOST_SECONDS:
            return None
        pulse.wait()
        seconds = []
        for _ in range(TIMINGS):
            before = pulse.speed()
            now = paced(clock, once)
            seconds.append(now * math.sqrt(before * pulse.speed()))
        return cls(clock, median(seconds))

    def begin(self) -> None:
        """A program's timing begins: nothing of the one before is taken up."""
        self._left, self._last = AGAIN, None

    def beside(
        self, timing: Callable[[], tuple[tuple[float, ...], bool]], until: float = math.inf
    ) -> tuple[tuple[float, ...], bool]:
        """The costs that `timing` finds, as at full speed: times `base` over the reference's time around it.

        What it finds besides, whether the program is slow, is passed on.

        A timing around which the speed changed is repeated, `AGAIN` times a program, if that will be done by
        `until` (`time.monotonic`); of the last one counts what the costs are at most.

        Raises
        ------
        Lost
            The reference fails. What `timing` raises is passed on.
        """
        while True:
            began = time.monotonic()
            before = self._last if self._last is not None else self.now()
            found, slow = timing()
            after = self._last = self.now()
            steady = max(before, after) <= FLIP * min(before, after)
            late = 2 * time.monotonic() - began > until
            if steady or not self._left or late:
                # Which of the two speeds the program had is not known: it must not win by the slower one.
                around = math.sqrt(before * after) if steady else min(before, after)
                return tuple(cost * self.base / around for cost in found), slow
            self._left -= 1

    def now(self) -> float:
        """Seconds that the reference takes now; `Lost` if it fails."""
        try:
            return paced(self.clock, self.base)
        except Exception as error:
            raise Lost(f"{type(error).__name__}: {error}") from error


def paced(clock: Clock, seconds: float = math.inf) -> float:
    """A program's time now, by as many calls as one of so many seconds gets (`calls`); else by one."""
    return settled(clock(calls(seconds)))


def settled(timings: Sequence[float]) -> float:
    """What the calls of a reference, one after the other, come to: the median of the later half.

    Other programs have just run, and the first calls find what they read farther away than the next ones do,
    of a Zen 5 twice as slow as the fifth. A time of all of them would depend on what was timed before.
    """
    return median(timings[len(timings) // 2 :])


def calls(seconds: float) -> int:
    """How many calls of a program that takes so many seconds make one time of a reference."""
    return max(1, min(CALLS, int(CALLS_SECONDS / seconds)))
