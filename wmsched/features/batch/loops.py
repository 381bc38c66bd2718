"""The loops of the heaviest stage of many candidates as arrays, for phi's cache and kernel columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.schedules.loop_nest import VECTORIZE, StageState
from wmsched.schedules.types import Stage

KINDS = "SRM"  # spatial, reduction, mixed: their numbers in `Depths.kind`
S, R = 0, 1

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Depths:
    """N candidates whose heaviest stage is of the same operation; D loops, innermost first, I iterators.

    Parameters
    ----------
    source, reads : the operation, and what it reads now
    extents : [N, D]
        One where a candidate has fewer loops.
    tiles : [N, D, I]
        How far each iterator of the operation runs in each loop.
    kind, ann, last : int [N, D]
        Kind (`KINDS`), annotation, and iterator of the last part of each loop.
    unroll : [N]
        The number of the stage's unroll pragma; 0 without one.
    vector : int [N]
        The vectorised loop's place; -1 for none.
    """

    source: Stage
    reads: tuple[Any, ...]
    extents: Floats
    tiles: Floats
    kind: Ints
    ann: Ints
    last: Ints
    unroll: Floats
    vector: Ints

    @classmethod
    def of(cls, states: Sequence[StageState]) -> Depths:
        """Of stages for which `fits` holds, all of one operation with the same reads."""
        source = states[0].source
        assert source is not None
        depth, count = max(len(s.loops) for s in states), len(source.iters)
        filled: list[list[tuple[float, int, int, int]]] = []
        tiles = np.ones((len(states), depth, count))
        for n, state in enumerate(states):
            row: list[tuple[float, int, int, int]] = []
            for d, loop in enumerate(reversed(state.loops)):
                row.append((loop.extent, KINDS.index(loop.kind), loop.ann, loop.parts[-1][0]))
                for it, extent in loop.parts:
                    if 0 <= it < count and extent > 1:
                        tiles[n, d, it] *= extent
            row += [(1, 0, 0, 0)] * (depth - len(row))
            filled.append(row)
        table = np.array(filled, dtype=np.float64).reshape(len(states), depth, 4)
        kind, ann, last = (table[:, :, k].astype(np.int64) for k in (1, 2, 3))
        vectorised = (ann == VECTORIZE) & (np.arange(depth) < np.array([[len(s.loops)] for s in states]))
        return cls(
            source=source,
            reads=states[0].reads,
            extents=table[:, :, 0],
            tiles=tiles,
            kind=kind,
            ann=ann,
            last=last,
            unroll=np.array([s.unroll for s in states], dtype=np.float64),
            vector=np.where(vectorised.any(axis=1), vectorised.argmax(axis=1), -1),
        )


def fits(state: StageState) -> bool:
    """Whether a stage can be laid out as arrays: every extent known, at most one loop vectorised."""
    vectors = sum(loop.ann == VECTORIZE for loop in state.loops)
    known = all(loop.extent > 0 and loop.parts and loop.kind in KINDS for loop in state.loops)
    return state.source is not None and bool(state.loops) and known and vectors <= 1
