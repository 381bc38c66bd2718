"""The columns of `body_features` for many candidates at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.body_features import LEAST
from wmsched.kernel_columns import Bools, _largest_first, _loads, _vector
from wmsched.phi_depths import Depths, Floats
from wmsched.schedules.loop_nest import UNROLL, VECTORIZE


def unrolled(numbers: Depths, there: Bools) -> tuple[NDArray[Any], Floats]:
    """How many of the innermost loops make the body that unrolling leaves, and its statements: each [N]."""
    counted = there & (numbers.ann != VECTORIZE)
    body = np.where(counted, numbers.extents, 1.0).cumprod(axis=1)
    full = counted & (numbers.ann != UNROLL) & (body > np.maximum(numbers.unroll, 1.0)[:, None])
    until = np.where(full.any(axis=1), full.argmax(axis=1), full.shape[1])
    rows = np.arange(len(body))
    return until, np.concatenate([np.ones((len(rows), 1)), body], axis=1)[rows, until]


def body_columns(numbers: Depths, there: Bools, until: NDArray[Any], tiles: Floats) -> dict[str, Floats]:
    """Columns by `BODY_NAMES`, each [N].

    Parameters
    ----------
    there : bool [N, D]
        Loops longer than one.
    until : int [N]
        How many loops the body has, as `unrolled` says.
    tiles : [N, D + 1, I]
        How far each iterator runs within the d innermost loops.
    """
    extents = numbers.extents
    rows = np.arange(len(extents))
    inside = np.concatenate([np.ones((len(rows), 1)), extents.cumprod(axis=1)], axis=1)[rows, until]
    _, lanes, vectors, axis = _vector(numbers, there)
    tile = tiles[rows, until]
    fmas = np.maximum(1.0, inside / lanes * vectors)
    outside = np.arange(extents.shape[1]) >= until[:, None]
    loads, gathers, held = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    for access in _largest_first(numbers.reads):
        runs = _still(numbers, outside, sorted({it for dim in access.dims for it, _ in dim}))
        count, gathered = _loads(access, tile, axis, vectors)
        loads += count / runs
        gathers += gathered / runs
        held += np.where(runs > 1, np.where(gathered > 0, count * vectors / lanes, count), 0.0)
    spatial = [n for n, i in enumerate(numbers.source.iters) if i.kind == "S"]
    runs = _still(numbers, outside, spatial)
    stores = np.ones(len(rows))
    for it in spatial:
        stores *= tile[:, it]
    stores = np.where(np.isin(axis, spatial), stores * (vectors / lanes), stores)
    held += np.where(runs > 1, stores, 0.0)
    return {
        "body_loads_per_fma": np.log2(np.maximum(loads / fmas, LEAST)),
        "body_gathers_per_fma": np.log2(np.maximum(gathers / fmas, LEAST)),
        "body_stores_per_fma": np.log2(np.maximum(stores / runs / fmas, LEAST)),
        "body_held": np.log2(1.0 + held),
    }


def _still(numbers: Depths, outside: Bools, iterators: list[int]) -> Floats:
    """Iterations of the loops right around the body that move none of these iterators: [N]."""
    known = [it for it in iterators if 0 <= it < numbers.tiles.shape[2]]
    moved = outside & (numbers.tiles[:, :, known] > 1).any(axis=2)
    stays: NDArray[np.bool_] = outside & ~(moved.cumsum(axis=1) > 0)
    runs: Floats = np.where(stays, numbers.extents, 1.0).prod(axis=1)
    return runs
