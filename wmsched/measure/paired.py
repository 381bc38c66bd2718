"""Time a program next to a reference program, so that a shared machine's noise cancels in the ratio.

A virtual machine's CPU runs at full speed for some seconds. Then a neighbour uses the other half of its core
for the next seconds, and programs take 1.5 to 1.8 times as long. Medians do not help, because all calls of a
candidate fall into the same spell. A reference called just before and after slows down equally. On such a
Xeon one program's times vary by 0.13 to 0.28 alone and by 0.02 to 0.06 with a reference (standard deviation
of the logarithm; `benchmarks.studies.timing_noise`).

This module needs no TVM. `buffer_offsets` and `metaschedule.measure.buffers` make the timings, in their
runners' processes.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from wmsched.measure.reference import MAX_REFERENCE_SECONDS, Lost, Reference
from wmsched.measure.reference_store import ReferenceStore

#: A program is timed again after n timings if its cost is below the best so far times the n-th ratio.
RETIME_RATIOS = (1.05, 1.02, 1.0)
REPLACE_SPEEDUP = 1.5  # a program this much faster than the reference becomes the reference
TIME_LIMIT_SHARE = 0.7  # of a runner's time limit; the rest is for process start and overshoot


def costs_of(
    places: int,
    prepare: Callable[[int], Callable[[], tuple[tuple[float, ...], bool]]],
    shelf: ReferenceStore | None,
    key: str,
    library: str | Path,
    arguments: Sequence[Any],
    limit: float = math.inf,
) -> tuple[float, ...]:
    """Return a program's costs in seconds on its sets of buffers, corrected by its task's reference.

    The first program of a task becomes its reference, as does one that is `REPLACE_SPEEDUP` times faster than
    the reference. The best of many programs is often lucky. A program about as fast as the best so far is
    therefore timed again on further sets, up to four timings (`RETIME_RATIOS`). The second slowest timing
    counts; of two, the slower. A task's first program is timed twice. What the reference took is then held
    against its base (`ReferenceStore.settle`).

    Parameters
    ----------
    places : int
        Number of sets.
    prepare : callable
        Takes a set's number, from 0 on. Returns a function that returns the costs on that set in
        seconds, and whether the program is too slow for another set.
    shelf : ReferenceStore or None
        None times the program without a reference.
    key : str
        Identifies the task.
    library, arguments
        See `ReferenceStore.put`.
    limit : float
        Seconds after which the process is killed. Further sets and timings start only if they should
        end within `TIME_LIMIT_SHARE` of it, so a slow runner may use only one set.
    """
    until = time.monotonic() + TIME_LIMIT_SHARE * limit
    longest = 0.0  # seconds of the slowest set

    def late() -> bool:
        return time.monotonic() + longest > until

    def all_places(reference: Reference | None, first: int = 0) -> tuple[float, ...]:
        nonlocal longest
        costs: tuple[float, ...] = ()
        for place in range(first, first + places):
            if costs and late():
                break
            began = time.monotonic()
            timing = None  # free the last set's buffers first
            timing = prepare(place)
            found, slow = timing() if reference is None else reference.beside(timing, until)
            costs += found
            longest = max(longest, time.monotonic() - began)
            if slow:
                break
        return costs

    if shelf is None:
        return all_places(None)
    key = hashlib.sha256(key.encode()).hexdigest()[:32]  # a folder name
    reference = shelf.get(key)
    own = reference is None
    if reference is None:
        alone = all_places(None)
        # Programs that are too slow never become a reference: do not load one to find out.
        if min(alone) > MAX_REFERENCE_SECONDS or late():
            return alone
        if (reference := shelf.put(key, library, arguments)) is None or late():
            return alone
    reference.begin()
    try:
        timings = [costs := all_places(reference)]
        for near in RETIME_RATIOS[: 1 if own else None]:
            if fmean(costs) >= reference.best * near or late():
                break
            reference.begin()
            timings.append(all_places(reference, len(timings) * places))
            costs = sorted(timings, key=fmean)[-2 if len(timings) > 2 else -1]
        factor = shelf.settle(str(library))
        costs = tuple(cost * factor for cost in costs)
        if fmean(costs) < reference.best:
            shelf.believe(fmean(costs))
            if fmean(costs) * REPLACE_SPEEDUP < reference.base:
                shelf.put(key, library, arguments, reference)
    except Lost:
        shelf.drop(key)
        costs = all_places(None)
    return costs
