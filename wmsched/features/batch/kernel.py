"""Columns of `features.kernel` for many candidates at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.features.batch.loops import Depths, Floats, R
from wmsched.features.kernel import LANES, MIN_PER_FMA, PAGE_BYTES, _stride, _strides
from wmsched.schedules.loop_nest import UNROLL, VECTORIZE

Bools = NDArray[np.bool_]


def kernel_columns(
    numbers: Depths, there: Bools, block: Bools, reduction: Bools, tiles: Floats
) -> dict[str, Floats]:
    """Return the columns of `table.KERNEL` by name, each [N].

    Parameters
    ----------
    there, block, reduction : bool [N, D]
        Loops longer than one; the innermost spatial ones of these; the reductions around those.
    tiles : [N, D + 1, I]
        Extent of each iterator within the d innermost loops.
    """
    extents, kind, last = numbers.extents, numbers.kind, numbers.last
    rows = np.arange(len(extents))
    depths = np.arange(extents.shape[1])
    vectored, lanes, vectors, axis = _vector(numbers, there)
    reduces = there & (kind == R)
    within = reduces[:, ::-1].cumsum(axis=1)[:, ::-1] > 0  # a reduction runs here or further out
    held = np.where(there & ~reduces & within, extents, 1.0).prod(axis=1)
    fmas = np.maximum(1.0, np.where(block, extents, 1.0).prod(axis=1) / lanes * vectors)
    tile = tiles[rows, _depth_of(block, depths)]
    deep = tiles[rows, _depth_of(block | reduction, depths)]
    reads = _largest_first(numbers.reads)
    loads, gathers, conflicts = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    conflict_max, pages_max = np.zeros(len(rows)), np.zeros(len(rows))
    for access in reads:
        count, gathered = _loads(access, tile, axis, vectors)
        loads += count
        gathers += gathered
        conflict, pages = _sets(access, deep)
        conflicts += conflict
        conflict_max, pages_max = np.maximum(conflict_max, conflict), np.maximum(pages_max, pages)
    found = {
        "accumulators": np.log2(1.0 + held / lanes * vectors),
        "accumulator_reuse": np.log2(1.0 + np.where(reduction, extents, 1.0).prod(axis=1)),
        "block_loads": np.log2(1.0 + loads),
        "block_loads_per_fma": np.log2(np.maximum(loads, 1e-3) / fmas),
        "block_gathers": np.log2(1.0 + gathers),
        "set_conflict_max": np.log2(1.0 + conflict_max),
        "set_conflict_sum": np.log2(1.0 + conflicts),
        "pages_max": np.log2(1.0 + pages_max),
        "vector_waste": vectors * LANES / lanes,
    }
    beside = block & ~(vectored[:, None] & (depths == numbers.vector[:, None]))
    for name, loops in (("reduce", reduces), ("spatial", beside)):
        some, iterator = loops.any(axis=1), last[rows, loops.argmax(axis=1)]
        for k in range(2):
            values = np.full(len(rows), -1.0)
            if k < len(reads):
                most = len(numbers.source.iters)
                strides = np.array([*(_stride(reads[k], it) for it in range(most)), 0.0])
                known = np.where((iterator >= 0) & (iterator < most), iterator, most)
                values = np.where(some, np.log2(1.0 + strides[known]), -1.0)
            found[f"{name}_stride_{k}"] = values
    return found


def _vector(numbers: Depths, there: Bools) -> tuple[Bools, Floats, Floats, NDArray[Any]]:
    """Return whether a loop is vectorised, its lanes, their registers, and its iterator (or -1): each [N]."""
    rows = np.arange(len(there))
    vectored = (numbers.vector >= 0) & there[rows, numbers.vector]
    lanes = np.where(vectored, numbers.extents[rows, numbers.vector], 1.0)
    axis = np.where(vectored, numbers.last[rows, numbers.vector], -1)
    return vectored, lanes, np.ceil(lanes / LANES), axis


def _largest_first(reads: Sequence[Any]) -> list[Any]:
    return sorted(reads, key=lambda a: -float(np.prod(a.shape, dtype=float)))


def _depth_of(loops: Bools, depths: NDArray[Any]) -> NDArray[Any]:
    """Return the depth, counted from the inside, of the outermost of these loops; 0 for none."""
    return np.where(loops, depths + 1, 0).max(axis=1, initial=0)


def _loads(access: Any, tile: Floats, axis: NDArray[Any], vectors: Floats) -> tuple[Floats, Floats]:
    """Return a read's register loads for a block, repeated ones counted once, and those that gather."""
    count, gathers = np.ones(len(tile)), np.zeros(len(tile), dtype=bool)
    for k, dim in enumerate(access.dims):
        for it, coefficient in dim:
            along = axis == it
            runs = tile[:, it]
            if k == len(access.dims) - 1 and abs(coefficient) == 1:
                runs = np.where(along, np.maximum(1.0, runs / LANES / vectors) * vectors, runs)
                gathers &= ~along
            else:
                gathers |= along
            count *= runs
    return count, np.where(gathers, count, 0.0)


def _sets(access: Any, tile: Floats) -> tuple[Floats, Floats]:
    """Return the block's lines that compete for one set of the first-level cache, and its pages."""
    conflict, pages = np.ones(len(tile)), np.ones(len(tile))
    for k, (dim, stride) in enumerate(zip(access.dims, _strides(access), strict=False)):
        if stride < 64:
            continue
        extent = np.ones(len(tile))
        for it, coefficient in dim:
            extent += max(1, abs(coefficient)) * (tile[:, it] - 1)
        if access.shape[k]:
            extent = np.minimum(extent, access.shape[k])
        more = extent > 1
        conflict *= np.where(more, np.maximum(1.0, extent * gcd(stride, PAGE_BYTES) / PAGE_BYTES), 1.0)
        touched = extent if stride >= PAGE_BYTES else np.maximum(1.0, extent * stride / PAGE_BYTES)
        pages *= np.where(more, touched, 1.0)
    return conflict, pages


# Array form of `features.kernel.body_features`.


def unrolled(numbers: Depths, there: Bools) -> tuple[NDArray[Any], Floats]:
    """Return the number of innermost loops in the unrolled body, and the body's statements: each [N]."""
    counted = there & (numbers.ann != VECTORIZE)
    body = np.where(counted, numbers.extents, 1.0).cumprod(axis=1)
    full = counted & (numbers.ann != UNROLL) & (body > np.maximum(numbers.unroll, 1.0)[:, None])
    until = np.where(full.any(axis=1), full.argmax(axis=1), full.shape[1])
    rows = np.arange(len(body))
    return until, np.concatenate([np.ones((len(rows), 1)), body], axis=1)[rows, until]


def body_columns(numbers: Depths, there: Bools, until: NDArray[Any], tiles: Floats) -> dict[str, Floats]:
    """Return the columns of `table.BODY` by name, each [N].

    Parameters
    ----------
    there : bool [N, D]
        Loops longer than one.
    until : int [N]
        Number of loops in the body (`unrolled`).
    tiles : [N, D + 1, I]
        Extent of each iterator within the d innermost loops.
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
        runs = _invariant_iterations(numbers, outside, sorted({it for dim in access.dims for it, _ in dim}))
        count, gathered = _loads(access, tile, axis, vectors)
        loads += count / runs
        gathers += gathered / runs
        held += np.where(runs > 1, np.where(gathered > 0, count * vectors / lanes, count), 0.0)
    spatial = [n for n, i in enumerate(numbers.source.iters) if i.kind == "S"]
    runs = _invariant_iterations(numbers, outside, spatial)
    stores = np.ones(len(rows))
    for it in spatial:
        stores *= tile[:, it]
    stores = np.where(np.isin(axis, spatial), stores * (vectors / lanes), stores)
    held += np.where(runs > 1, stores, 0.0)
    return {
        "body_loads_per_fma": np.log2(np.maximum(loads / fmas, MIN_PER_FMA)),
        "body_gathers_per_fma": np.log2(np.maximum(gathers / fmas, MIN_PER_FMA)),
        "body_stores_per_fma": np.log2(np.maximum(stores / runs / fmas, MIN_PER_FMA)),
        "body_held": np.log2(1.0 + held),
    }


def _invariant_iterations(numbers: Depths, outside: Bools, iterators: list[int]) -> Floats:
    """Return the iterations of the loops directly around the body that leave these iterators alone, [N]."""
    known = [it for it in iterators if 0 <= it < numbers.tiles.shape[2]]
    moved = outside & (numbers.tiles[:, :, known] > 1).any(axis=2)
    stays: NDArray[np.bool_] = outside & ~(moved.cumsum(axis=1) > 0)
    runs: Floats = np.where(stays, numbers.extents, 1.0).prod(axis=1)
    return runs
