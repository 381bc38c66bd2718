"""Loops of many candidates' heaviest stages as arrays, for phi's cache and kernel columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.schedules.loop_nest import VECTORIZE, StageState
from wmsched.schedules.types import Stage

KINDS = "SRM"  # spatial, reduction, mixed; the position is the number in `Depths.kind`
S, R = 0, 1

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Depths:
    """Loops of N candidates with the same heaviest operation: D loops, innermost first, I iterators.

    Parameters
    ----------
    source, reads
        The operation, and its present reads.
    extents : [N, D]
        1 where a candidate has fewer loops.
    tiles : [N, D, I]
        Extent of each iterator of the operation in each loop.
    kind, ann, last : int [N, D]
        Kind (`KINDS`), annotation, and iterator of the last part of each loop.
    unroll : [N]
        Number of the stage's unroll pragma; 0 without one.
    vector : int [N]
        Number of the vectorised loop; -1 for none.
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
        """Return the loops of stages for which `fits` holds, all of one operation with the same reads."""
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
    """Return whether a stage has an array form: known extents, and at most one vectorised loop."""
    vectors = sum(loop.ann == VECTORIZE for loop in state.loops)
    known = all(loop.extent > 0 and loop.parts and loop.kind in KINDS for loop in state.loops)
    return state.source is not None and bool(state.loops) and known and vectors <= 1
