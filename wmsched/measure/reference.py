"""Reference program for paired timing: its known full-speed time corrects other programs' times.

This module needs no TVM. `buffer_offsets` and `metaschedule.measure.buffers` make the timings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median

from wmsched.measure.clock_probe import ClockProbe, pause

MAX_DRIFT = 1.1  # ratio of the reference's times before and after; beyond it the timing is repeated
MAX_RETRIES = 3  # repeated timings of a program
PAUSE_SECONDS = (0.1, 0.25, 1.0)  # before each repetition
PAUSED_SHARE, PAUSED_SECONDS = 0.1, 3.0  # of a process's time, and what it may pause beyond that
FIRST_TIMINGS, MAX_FIRST_TIMINGS = 3, 9  # timings of a new reference: as many agree, of as many at most
CALLS, CALLS_SECONDS = 10, 0.01  # calls of the reference for one time, and their time budget
MAX_REFERENCE_SECONDS = 0.05  # a call of a slower program averages over fast and slow spells

#: Takes a number of calls; returns the seconds of each. It may make another number of calls.
Clock = Callable[[int], Sequence[float]]


class Lost(Exception):
    """The reference program can no longer be timed."""


class Patience:
    """Pauses before repeated timings, for a disturbance to end.

    All pauses together take at most `PAUSED_SHARE` of the time and `PAUSED_SECONDS`: a neighbour that stays
    is not waited for.
    """

    def __init__(
        self, sleep: Callable[[float], None] = pause, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sleep, self._clock = sleep, clock
        self._began, self._paused = clock(), 0.0

    def pause(self, repetition: int) -> float:
        """Return the seconds of the pause before a repetition, counted from 0."""
        left = PAUSED_SECONDS + PAUSED_SHARE * (self._clock() - self._began) - self._paused
        return max(0.0, min(PAUSE_SECONDS[min(repetition, len(PAUSE_SECONDS) - 1)], left))

    def sleep(self, seconds: float) -> None:
        """Pause."""
        self._paused += seconds
        self._sleep(seconds)


class Reference:
    """A program whose time at full speed is known, and which is timed around other programs.

    Parameters
    ----------
    clock : callable
        Times the program now.
    base : float
        The program's best known time at full speed, seconds.
    best : float
        The lowest cost of a program timed with this reference, seconds.
    patience : Patience, optional
        Shared by the references of a process.

    Attributes
    ----------
    steady : list of float
        The reference's seconds around each timing in which the speed stayed, since they were last taken.

    Examples
    --------
    >>> reference = Reference.first(clock, ClockProbe("full_speed.json"))
    >>> costs, is_slow = reference.beside(time_candidate)
    """

    def __init__(
        self, clock: Clock, base: float, best: float = math.inf, patience: Patience | None = None
    ) -> None:
        self.clock, self.base, self.best = clock, base, best
        self.patience = patience or Patience()
        self.steady: list[float] = []
        self._left = MAX_RETRIES
        self._last: float | None = None  # the reference's latest time, seconds

    @classmethod
    def first(cls, clock: Clock, pulse: ClockProbe, patience: Patience | None = None) -> Reference | None:
        """Return a task's first reference; None if the program is too slow for one.

        Its base is the median of the lowest timings that agree. A stall makes a timing longer and none
        shorter.
        """
        once = paced(clock)
        if not 0.0 < once <= MAX_REFERENCE_SECONDS:
            return None
        pulse.wait()
        seconds: list[float] = []
        for _ in range(MAX_FIRST_TIMINGS):
            before = pulse.speed()
            now = paced(clock, once)
            seconds.append(now * math.sqrt(before * pulse.speed()))
            lowest = sorted(seconds)[:FIRST_TIMINGS]
            if len(lowest) == FIRST_TIMINGS and lowest[-1] <= MAX_DRIFT * lowest[0]:
                break
        return cls(clock, median(lowest), patience=patience)

    def begin(self) -> None:
        """Start a new program: forget the retries and the latest time of the one before."""
        self._left, self._last = MAX_RETRIES, None

    def beside(
        self, timing: Callable[[], tuple[tuple[float, ...], bool]], until: float = math.inf
    ) -> tuple[tuple[float, ...], bool]:
        """Return the costs that `timing` finds, scaled to full speed, and whether the program is slow.

        A cost is multiplied by `base` over the reference's time around the timing. A timing during which the
        speed changed is repeated after a pause (`Patience`), up to `MAX_RETRIES` times a program and if it
        can end by `until` (`time.monotonic`). The last try counts with the upper bound of its costs.

        Raises
        ------
        Lost
            The reference fails. Exceptions of `timing` are passed on.
        """
        while True:
            began = time.monotonic()
            before = self._last if self._last is not None else self.now()
            found, slow = timing()
            after = self._last = self.now()
            steady = max(before, after) <= MAX_DRIFT * min(before, after)
            wait = self.patience.pause(MAX_RETRIES - self._left)
            late = 2 * time.monotonic() - began + wait > until
            if steady or not self._left or late:
                # The program's own speed is unknown: assume full speed, so that it does not win by luck.
                around = math.sqrt(before * after) if steady else min(before, after)
                if steady:
                    self.steady.append(around)
                return tuple(cost * self.base / around for cost in found), slow
            self._left -= 1
            if wait:
                self.patience.sleep(wait)
                self._last = None  # the speed may have changed

    def now(self) -> float:
        """Return the seconds that the reference takes now; raise `Lost` if it fails."""
        try:
            return paced(self.clock, self.base)
        except Exception as error:
            raise Lost(f"{type(error).__name__}: {error}") from error


def paced(clock: Clock, seconds: float = math.inf) -> float:
    """Return a program's time now, from as many calls as `calls` gives for `seconds`; by default one."""
    return settled(clock(calls(seconds)))


def settled(timings: Sequence[float]) -> float:
    """Return the median of the later half of a reference's consecutive calls.

    The first calls run after other programs and find their data farther away in the caches. On a Zen 5 the
    first call takes twice the fifth. The median of all calls would depend on what ran before.
    """
    return median(timings[len(timings) // 2 :])


def calls(seconds: float) -> int:
    """Return how many calls of a program of `seconds` make one time of a reference."""
    return max(1, min(CALLS, int(CALLS_SECONDS / seconds)))
