"""How much of its full speed a virtual processor has now, which shares its core with others. No TVM here."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

BEATS, PAUSE = 5, 0.1  # beats that full speed is first taken from, and seconds between them
WAITS = 15  # pauses at most for full speed
NEAR = 1.1  # full speed is waited for until it is at most so many times what there is
PRODUCTS, SIDE, TIMES = 100, 48, 5  # matrix products in a beat's timing, their extents, timings in a beat


class ClockProbe:
    """How much of its full speed, the best seen so far, the processor has now.

    Of use where nothing of the task has been timed yet: it measures arithmetic in the first cache, and a
    program that waits for memory is slowed less.

    Parameters
    ----------
    path : path
        A file that full speed is kept in.
    beat : callable, optional
        Times the same work each time, seconds.
    sleep : callable, optional
    """

    def __init__(
        self,
        path: str | Path,
        beat: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path, self.beat, self.sleep = Path(path), beat or products(), sleep
        self._waits = WAITS
        try:
            self.full = float(json.loads(self.path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            self.full = math.inf
            for _ in range(BEATS):
                self.speed()
                sleep(PAUSE)

    def speed(self) -> float:
        """From 0 to 1, which is full speed."""
        now = self.beat()
        if now < self.full:
            self.full = now
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(now), encoding="utf-8")
            new.replace(self.path)
        return self.full / now

    def wait(self) -> None:
        """Until it has full speed, but not for long: half as long each time that it was in vain before."""
        for _ in range(self._waits):
            if self.speed() * NEAR >= 1.0:
                self._waits = min(WAITS, 2 * self._waits)
                return
            self.sleep(PAUSE)
        self._waits = max(1, self._waits // 2)


def products() -> Callable[[], float]:
    """A beat: products of small matrices, which one core has in its registers and first cache."""
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
