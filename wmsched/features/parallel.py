"""What a number of threads makes of a schedule: how far from an equal share each of them is.

A parallel loop of P iterations gives each of C threads P / C of them, rounded up, and is over when the
fullest is; a stage that lies in no parallel loop is one thread's alone. So a schedule whose stages have work
w takes

    sum of w ceil(P / C) / P

of what one thread would take for all, where an equal share takes 1 / C of it. The column `SLOWDOWN` is the
logarithm to base 2 of the first over the second: 0 with one thread, and where all work is dealt evenly;
log2 C where nothing is parallel. Records of machines with few cores cannot teach this, and no tree trained on
them knows it, so the ranker takes it off by itself (`ranker.Ranker`).

Work is iterations, a vector of up to 16 at a time. That memory, the last level of cache and the clock are
shared, and that threads have to be woken up, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.schedules.loop_nest import PARALLEL, VECTORIZE, StageState

SLOWDOWN = "parallel_slowdown"
LANES = 16  # float32 of a vector register of AVX-512

Floats = NDArray[np.float64]


def slowdown(live: Sequence[StageState], threads: int) -> float:
    """`SLOWDOWN` of a nest's stages in use: [0, log2 threads]."""
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
    """The same of N candidates.

    Parameters
    ----------
    works, lanes, shared : [N, S]
        Iterations of each stage, its vector's length, and what `shared_by` gives; work is 0 where there is
        no stage.

    Returns
    -------
    [N]
    """
    if threads <= 1:
        return np.zeros(len(works))
    work = works / np.clip(lanes, 1, LANES)
    extent = np.maximum(shared, 1.0)
    # summed from the first on, as `slowdown` does it
    spent = (work * np.ceil(extent / threads) / extent).cumsum(axis=1)[:, -1]
    total = work.cumsum(axis=1)[:, -1]
    return np.log2(np.where(total > 0, threads * spent / np.where(total > 0, total, 1.0), 1.0))


def shared_by(s: StageState) -> Any:
    """Iterations of the parallel loop that a stage lies in, its own or that of where it is computed; or 1."""
    at: StageState | None = s
    for _ in range(64):  # a nest that computes a stage at itself would not end
        if at is None:
            break
        for x in at.loops:
            if x.ann == PARALLEL:
                return x.extent
        at = at.at[0] if at.at is not None else None
    return 1


def lanes(s: StageState) -> Any:
    """The length of a stage's innermost vectorised loop; or 1."""
    return next((x.extent for x in reversed(s.loops) if x.ann == VECTORIZE), 1)
