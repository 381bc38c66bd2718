"""Effective clock of a virtual CPU that shares its core with other machines. Needs no TVM."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

BEATS, PAUSE_SECONDS = 5, 0.1  # beats of the first estimate of full speed, and the pause between them
MAX_WAITS = 15  # pauses while waiting for full speed
FULL_SPEED_RATIO = 1.1  # waiting ends when full speed is at most this many times the present speed
PRODUCTS, SIDE, TIMES = 100, 48, 5  # matrix products of a timing, their extents, timings of a beat
NO_PAUSES = "WMSCHED_NO_PAUSES"  # an environment variable; with "1" no timing waits for a quieter machine


def pause(seconds: float) -> None:
    """Sleep so long for the machine to become quieter, unless `NO_PAUSES` says that it will not."""
    if os.environ.get(NO_PAUSES) != "1":
        time.sleep(seconds)


class ClockProbe:
    """Measures the CPU's present speed relative to the best seen so far.

    It is for tasks without a timing yet. It times arithmetic in the first-level cache; a program that waits
    for memory slows down less.

    Parameters
    ----------
    path : path
        File that keeps the best beat, in seconds.
    beat : callable, optional
        Times a fixed amount of work, in seconds.
    sleep : callable, optional

    Examples
    --------
    >>> probe = ClockProbe("full_speed.json")
    >>> probe.wait()
    >>> probe.speed()  # doctest: +SKIP
    0.98
    """

    def __init__(
        self,
        path: str | Path,
        beat: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = pause,
    ) -> None:
        self.path, self.beat, self.sleep = Path(path), beat or products(), sleep
        self._waits = MAX_WAITS
        try:
            self.full = float(json.loads(self.path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            self.full = math.inf
            for _ in range(BEATS):
                self.speed()
                sleep(PAUSE_SECONDS)

    def speed(self) -> float:
        """Return the present speed, from 0 to 1 (full speed)."""
        now = self.beat()
        if now < self.full:
            self.full = now
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(now), encoding="utf-8")
            new.replace(self.path)
        return self.full / now

    def wait(self) -> None:
        """Wait for full speed, at most MAX_WAITS pauses; each wait in vain halves the limit of the next."""
        for _ in range(self._waits):
            if self.speed() * FULL_SPEED_RATIO >= 1.0:
                self._waits = min(MAX_WAITS, 2 * self._waits)
                return
            self.sleep(PAUSE_SECONDS)
        self._waits = max(1, self._waits // 2)


def products() -> Callable[[], float]:
    """Return a beat that times products of small matrices, which fit the registers and first-level cache."""
    import numpy as np

    factor = np.ones((SIDE, SIDE), np.float32)
    product = np.empty_like(factor)

    def beat() -> float:
        seconds = []
        for _ in range(TIMES):
            start = time.perf_counter()
            for _ in range(PRODUCTS):
                np.matmul(factor, factor, out=product)
            seconds.append(time.perf_counter() - start)
        return median(seconds)

    return beat
