"""Times a program beside another one, so that what else a shared machine does falls out of the ratio.

A processor of a virtual machine runs at full speed for some seconds and at 1.5 to 1.8 times a program's time
for the next, while a neighbour has the other half of its core. Medians do not see that: all calls of one
candidate fall into one spell or the other. A reference that is called just before and just after is slowed
with it. On such a Xeon the times of one program vary by 0.13 to 0.28 (standard deviation of the logarithm) by
themselves and by 0.02 to 0.06 beside a reference (`benchmarks.studies.timing_noise`).

No TVM here: what a timing is comes from `placements` and `meta_places`, in their runners' processes.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from wmsched.measure.reference import MOST_SECONDS, Lost, Reference
from wmsched.measure.reference_store import ReferenceStore

#: A program whose cost is less than the best so far times the n-th is timed once more, after n timings.
NEAR = (1.05, 1.02, 1.0)
FASTER = 1.5  # a program so many times as fast as the reference is the better one
SHARE = 0.7  # of a runner's time limit: the rest is for starting the process and for what a timing overshoots


def costs_of(
    places: int,
    prepare: Callable[[int], Callable[[], tuple[tuple[float, ...], bool]]],
    shelf: ReferenceStore | None,
    key: str,
    library: str | Path,
    arguments: Sequence[Any],
    limit: float = math.inf,
) -> tuple[float, ...]:
    """A program's costs on its sets of buffers, beside its task's reference.

    Where the task has none yet the program becomes it, and where it is much faster than the one it has. What
    is as fast as the best so far, or nearly, is timed again on other sets, up to four times (`NEAR`); the
    slowest timing but one counts, of two the slower: the best of many is often a lucky one. A task's first
    program, which nothing is known to beat yet, is timed twice: most of a short search is first programs.

    Parameters
    ----------
    places : int
        How many sets.
    prepare : callable
        Given a set's number, from 0 on, what finds the costs there, in seconds, and whether the program is
        too slow for another.
    shelf : Shelf or None
        None: the program is timed by itself.
    key : str
        Tells the task from others.
    library, arguments
        See `Shelf.put`.
    limit : float
        Seconds after which the process is ended. Further sets and repeated timings that could last longer
        than `SHARE` of them are not begun: a runner whose `repeat` and least time are long has one set alone.
    """
    until = time.monotonic() + SHARE * limit
    longest = 0.0  # that a set has taken

    def late() -> bool:
        return time.monotonic() + longest > until

    def all_places(reference: Reference | None, first: int = 0) -> tuple[float, ...]:
        nonlocal longest
        costs: tuple[float, ...] = ()
        for place in range(first, first + places):
            if costs and late():
                break
            began = time.monotonic()
            timing = None  # the last set's buffers are freed before
            timing = prepare(place)
            found, slow = timing() if reference is None else reference.beside(timing, until)
            costs += found
            longest = max(longest, time.monotonic() - began)
            if slow:
                break
        return costs

    if shelf is None:
        return all_places(None)
    key = hashlib.sha256(key.encode()).hexdigest()[:32]  # the name of a folder
    reference = shelf.get(key)
    own = reference is None
    if reference is None:
        alone = all_places(None)
        # A task whose programs are all too slow has never a reference: none is loaded to find that out.
        if min(alone) > MOST_SECONDS or late():
            return alone
        if (reference := shelf.put(key, library, arguments)) is None or late():
            return alone
    reference.begin()
    try:
        timings = [costs := all_places(reference)]
        for near in NEAR[: 1 if own else None]:
            if fmean(costs) >= reference.best * near or late():
                break
            reference.begin()
            timings.append(all_places(reference, len(timings) * places))
            costs = sorted(timings, key=fmean)[-2 if len(timings) > 2 else -1]
        if fmean(costs) < reference.best:
            shelf.believe(fmean(costs))
            if fmean(costs) * FASTER < reference.base:
                shelf.put(key, library, arguments, reference)
    except Lost:
        shelf.drop(key)
        costs = all_places(None)
    return costs
