"""Time a program of AutoScheduler's local runner on several sets of buffers (needs its TVM).

The offset between a program's input and output buffers can change its time severalfold. A schedule of
ResNet-50's max pooling takes 73 us on one pair of buffers and 270 us on most others; another takes 113 us on
all. TVM's runner has one set of buffers for every candidate, so a search prefers what is fast on that set.
Here each set has other gaps between its tensors, and a candidate's record has one cost a set; the mean
counts.

A cost is the median of a few calls, each after a cache flush. TVM's runner makes one call. On a shared
machine one call is off by 25% on average, and by more than a factor of two in one case of a hundred. The best
of 64 candidates would then be partly luck.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

PLACES = 3  # sets of buffers
CALLS = 30  # at most, on each set; TVM's tutorials take the mean of 10 calls on one set
CALLS_SECONDS = 0.05  # time budget of these calls
PAGE = 4096  # bytes
GAP_PAGES = (16, 1024)  # 64 KiB to 4 MiB: from 64 KiB on malloc maps a gap separately, as it does tensors
CPU = 1  # DLPack's device type

logger = logging.getLogger(__name__)


def timing(
    evaluate: Callable[[int], tuple[float, ...]], repeat: int, limit: float, calls: int
) -> Callable[[], tuple[tuple[float, ...], bool]]:
    """Return a function that finds a program's costs on one set of buffers.

    The function returns the costs in seconds, and whether the program is too slow for another set.

    Parameters
    ----------
    evaluate : callable
        Makes the given number of timings, in seconds; see `evaluator`.
    repeat : int
        Number of costs.
    limit : float
        Seconds for `repeat` timings, above which a program is slow.
    calls : int
        Upper bound of the timings whose medians are the costs; 0 for only the first `repeat`.
        Slow programs get only those.
    """
    import time

    def timed() -> tuple[tuple[float, ...], bool]:
        began = time.time()
        found = evaluate(repeat)
        slow = time.time() - began > limit
        if not slow and (more := more_calls(calls // repeat, repeat * max(found))):
            found = medians(found + evaluate(repeat * more), repeat)
        return found, slow

    return timed


def more_calls(calls: int, seconds: float) -> int:
    """Return how many calls to add after one of `seconds`, within `calls` in all and CALLS_SECONDS."""
    return max(0, min(calls, int(CALLS_SECONDS / max(seconds, 1e-9))) - 1)


def medians(timings: tuple[float, ...], count: int) -> tuple[float, ...]:
    """Return the medians of `count` groups; group k has the timings k, k + count, k + 2 count, ..."""
    from statistics import median

    return tuple(median(timings[k::count]) for k in range(count))


def place_seconds(enough: float, repeat: int, least_ms: float) -> float:
    """Return the seconds that the timing on one set may take for another set to be tried.

    TVM's evaluator makes an uncounted first call, and overshoots the minimum time.

    Parameters
    ----------
    enough : float
        Seconds that two calls may take.
    repeat : int
        Timings on each set.
    least_ms : float
        Minimum milliseconds of a timing.
    """
    return max(enough, 3e-3 * least_ms) * (repeat + 1) / 2


def apart(
    place: int, given: Iterable[Any], make: Callable[[Any], Any], gap: Callable[[int], Any]
) -> list[Any]:
    """Return [gap, tensor, gap, tensor, ...]: `make` of each of `given`, each after a gap.

    `gap` makes a gap of a number of bytes. The gaps of a set (`place`) are the same for every program; set 0
    has None instead of gaps.
    """
    import random

    sizes = random.Random(place)
    found: list[Any] = []
    for one in given:
        found.append(gap(PAGE * sizes.randint(*GAP_PAGES)) if place else None)
        found.append(make(one))
    return found
