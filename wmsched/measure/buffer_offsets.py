"""Has AutoScheduler's local runner time a program several times on several sets of buffers (needs its TVM).

Where the input of a program lies from its output can change its time severalfold: a schedule of ResNet-50's
max pooling takes 73 us on one pair of buffers and 270 us on most others, another 113 us on all. TVM's runner
has one set of buffers for every candidate, so a search takes what is fast there. Timed on several sets, each
with other gaps between its tensors, a candidate's record has one cost for each and the mean of them counts.

Such a cost is the median of a few calls, each after a flush. TVM's runner makes one, which on a shared
machine is off by a quarter of itself and one time in a hundred by more than twice: the best of 64 candidates
is then picked by luck as much as by speed. A median of a few does not see the odd slow one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

PLACES = 3
CALLS = 30  # in a place at most, whose median is its cost; TVM's tutorials take the mean of 10 in one place
CALLS_SECONDS = 0.05  # fewer of a program that takes longer for them
PAGE = 4096
GAP_PAGES = (16, 1024)  # from 64 KiB, so that the gap is a mapping of its own as the tensors are, to 4 MiB
CPU = 1  # DLPack's number of the kind of device

logger = logging.getLogger(__name__)


def timing(
    evaluate: Callable[[int], tuple[float, ...]], repeat: int, limit: float, calls: int
) -> Callable[[], tuple[tuple[float, ...], bool]]:
    """What finds a program's costs on a set of buffers, and whether it is too slow for another set.

    Parameters
    ----------
    evaluate : callable
        Makes so many timings, in seconds; see `evaluator`.
    repeat : int
        Costs that are wanted.
    limit : float
        Seconds for `repeat` timings, above which a program is slow.
    calls : int
        Timings at most that the costs are the medians of, where it is not; 0 for none but the first `repeat`.
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
    """How many calls to make after one of so many seconds, for `calls` in all or what CALLS_SECONDS allow."""
    return max(0, min(calls, int(CALLS_SECONDS / max(seconds, 1e-9))) - 1)


def medians(timings: tuple[float, ...], count: int) -> tuple[float, ...]:
    """The medians of `count` groups: timing k, k + count, k + 2 count, ... make the k-th."""
    from statistics import median

    return tuple(median(timings[k::count]) for k in range(count))


def place_seconds(enough: float, repeat: int, least_ms: float) -> float:
    """Seconds that the timing in a place may take for another to be tried.

    TVM's evaluator makes a first call that does not count, and overshoots the least time.

    Parameters
    ----------
    enough : float
        Seconds that two calls may take.
    repeat : int
        Timings in each place,
    least_ms : float
        and the milliseconds that each takes at least.
    """
    return max(enough, 3e-3 * least_ms) * (repeat + 1) / 2


def apart(
    place: int, given: Iterable[Any], make: Callable[[Any], Any], gap: Callable[[int], Any]
) -> list[Any]:
    """Gap, tensor, gap, tensor, ...: what `make` makes of each of `given`, each after what `gap` makes of a
    number of bytes; those of a place are the same for every program, and the first has None."""
    import random

    sizes = random.Random(place)
    found: list[Any] = []
    for one in given:
        found.append(gap(PAGE * sizes.randint(*GAP_PAGES)) if place else None)
        found.append(make(one))
    return found
