"""Evidence for and against a reference's base, its time at full speed; needs no TVM.

A base that is timed in a disturbed spell is wrong, and every program of its task counts as too slow or too
fast by the same factor. The programs of the task stay in order. But a search spends its trials on the tasks
that seem to take most time.

Too high: no program runs faster than at full speed, so a reference that later takes less speaks against its
base. Too low: the reference takes longer while the clock probe has full speed, and another task's reference
takes what it should before and after.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from wmsched.measure.reference import MAX_DRIFT

LOWER, HIGHER = 1.15, 1.3  # a base is revised if it is so many times too high, or too low
FULL_SPEED = (0.9, 1.1)  # of a base: what a reference takes at full speed
LEAST_SLOW_PROGRAMS = 3  # beside which the reference takes longer than its base, in all its visits
MAX_GAP_SECONDS = 60.0  # between two timings of which one says how fast the machine is at the other
KEPT = 256  # latest observations


class Observation(NamedTuple):
    """What a reference took beside one program."""

    reference: str  # its lineage
    at: float  # seconds
    seconds: float  # the least of its steady times
    base: float
    speed: float  # of the clock probe, from 0 to 1


class Pace:
    """Observations of all references of a folder, in order; later processes go on with them.

    Parameters
    ----------
    path : Path
        JSON lines.
    clock : callable () -> float
        Seconds, the same in all processes.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self.clock = path, clock
        self.seen: list[Observation] = []
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines()[-KEPT:]:
                try:
                    self.seen.append(Observation(*json.loads(line)))
                except (ValueError, TypeError):  # a killed process leaves half a line
                    continue

    def add(self, reference: str, seconds: float, base: float, speed: float) -> None:
        """Add what a reference took beside a program."""
        one = Observation(reference, self.clock(), seconds, base, speed)
        self.seen = [*self.seen[-KEPT:], one]
        append(self.path, one)

    def too_low(self) -> tuple[str, float, float] | None:
        """Return a reference whose base is too low, with its base and its seconds; None without one.

        The latest observation must be at full speed, as must one before the reference's last visit, a series
        of programs of its task. Either both are right beside the visit, or there was another visit.
        """
        if not self.seen or not _witnesses(self.seen[-1]):
            return None
        for suspect in dict.fromkeys(one.reference for one in reversed(self.seen)):
            if suspect != self.seen[-1].reference and (found := self._judged(suspect)) is not None:
                return found
        return None

    def _judged(self, suspect: str) -> tuple[str, float, float] | None:
        own = [place for place, one in enumerate(self.seen) if one.reference == suspect]
        last, base = own[-1], self.seen[own[-1]].base
        first = last
        while first and self.seen[first - 1].reference == suspect:
            first -= 1
        fair = [
            place
            for place in own
            if self.seen[place].base == base and self.seen[place].speed >= FULL_SPEED[0]
        ]
        seconds = [self.seen[place].seconds for place in fair]
        if len(fair) < LEAST_SLOW_PROGRAMS or min(seconds) <= HIGHER * base:
            return None
        visit = [self.seen[place].seconds for place in fair if place >= first]
        if not visit or max(visit) > MAX_DRIFT * min(visit):
            return None
        before = max((place for place in range(first) if _witnesses(self.seen[place])), default=None)
        if before is None:
            return None
        if self.seen[-1].at - self.seen[last].at > MAX_GAP_SECONDS:
            return None
        if self.seen[first].at - self.seen[before].at > MAX_GAP_SECONDS:
            return None
        beside = before == first - 1 and last == len(self.seen) - 2
        return (suspect, base, min(seconds)) if beside or fair[0] < first else None


def _witnesses(one: Observation) -> bool:
    """Whether a reference took what it does at full speed."""
    return one.speed >= FULL_SPEED[0] and FULL_SPEED[0] <= one.seconds / one.base <= FULL_SPEED[1]


def too_high(lows: list[float], base: float) -> float | None:
    """Return a lower base that a reference's lowest seconds ask for; None if they agree with it.

    The second lowest counts, so that no single reading of a clock decides.
    """
    return lows[1] if len(lows) > 1 and lows[1] * LOWER < base else None


def append(path: Path, line: object) -> None:
    """Append a JSON line in one write."""
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
