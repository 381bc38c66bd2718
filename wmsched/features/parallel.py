"""Parallel slowdown: how far a schedule is from equal work on all threads.

A parallel loop of P iterations gives a thread at most ceil(P / C) of them, for C threads, and ends with the
fullest thread. A stage outside of all parallel loops runs on one thread. So a schedule with stages of work w
takes

    sum of w ceil(P / C) / P

of one thread's time for everything, where equal shares take 1 / C. The column `SLOWDOWN` is log2 of the ratio
of the two: 0 with one thread or equal shares, log2 C where nothing is parallel. Records from machines with
few cores cannot teach this to trees, so the ranker subtracts the column itself (`ranker.Ranker`).

Work is counted in iterations, with up to 16 lanes of a vector as one. Shared memory bandwidth, last-level
cache and clock are left out, and so is the start of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.schedules.loop_nest import PARALLEL, VECTORIZE, StageState

SLOWDOWN = "parallel_slowdown"
LANES = 16  # float32 of an AVX-512 register

Floats = NDArray[np.float64]


def slowdown(live: Sequence[StageState], threads: int) -> float:
    """Return `SLOWDOWN` of a nest's stages in use, in [0, log2 threads]."""
    if threads <= 1:
        return 0.0
    total = spent = 0.0
    for s in live:
        work = s.work() * s.around / min(max(1, lanes(s)), LANES)
        extent = max(1, shared_by(s))
        total += work
        spent += work * -(-extent // threads) / extent
    return log2(threads * spent / total) if total > 0 else 0.0


def slowdowns(works: Floats, lanes: Floats, shared: Floats, threads: int) -> Floats:
    """Return `SLOWDOWN` of N candidates.

    Parameters
    ----------
    works, lanes, shared : [N, S]
        Iterations of each stage, its vector's length, and its `shared_by`; work is 0 where there is no
        stage.

    Returns
    -------
    [N]
    """
    if threads <= 1:
        return np.zeros(len(works))
    work = works / np.clip(lanes, 1, LANES)
    extent = np.maximum(shared, 1.0)
    # cumsum adds in the order of `slowdown`, so that results are equal
    spent = (work * np.ceil(extent / threads) / extent).cumsum(axis=1)[:, -1]
    total = work.cumsum(axis=1)[:, -1]
    return np.log2(np.where(total > 0, threads * spent / np.where(total > 0, total, 1.0), 1.0))


def shared_by(s: StageState) -> Any:
    """Return the iterations of the parallel loop around a stage, its own or its consumer's; 1 without one."""
    at: StageState | None = s
    for _ in range(64):  # bounds a nest that computes a stage at itself
        if at is None:
            break
        for x in at.loops:
            if x.ann == PARALLEL:
                return x.extent
        at = at.at[0] if at.at is not None else None
    return 1


def lanes(s: StageState) -> Any:
    """Return the extent of a stage's innermost vectorised loop; 1 without one."""
    return next((x.extent for x in reversed(s.loops) if x.ann == VECTORIZE), 1)
