"""Kernel features of phi: registers, loads per multiply, cache-set conflicts and pages of a loop nest.

Loop depths and cache sizes (`step_features`) measure how much data moves. These columns tell apart nests that
move the same. They show accumulators that spill, rows a power of two apart that share a set of the
first-level cache, vectors that gather, and reductions that stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, log2
from typing import Any

from wmsched.schedules.loop_nest import UNROLL, VECTORIZE, Loop, StageState

LANES = 16  # float32 in the widest vector register served
PAGE_BYTES = 4096  # also the distance of two lines of one set in a cache with 64 sets


def kernel_features(main: StageState, loops: Sequence[Loop], reads: Sequence[Any]) -> dict[str, float]:
    """Return the columns of the heaviest stage's innermost block.

    Parameters
    ----------
    main : StageState
        The stage; its source is known.
    loops : sequence of Loop
        Its loops longer than one, outermost first.
    reads : sequence of Access
        What it reads, the largest tensor first.

    Returns
    -------
    dict
        By the names of `table.KERNEL`; counts and strides (bytes) are log2(1 + x).
    """
    src = main.source
    assert src is not None
    vector, lanes, vectors, axis = _vector(loops)
    block, rest = _innermost_of_kind(loops, "S")
    reduction, _ = _innermost_of_kind(rest, "R")
    first = next((n for n, x in enumerate(loops) if x.kind == "R"), len(loops))
    held = _product(x for x in loops[first:] if x.kind != "R")
    inner = _product(block)
    fmas = max(1.0, inner / lanes * vectors)
    tile = _tile(src.iters, block)
    deep = _tile(src.iters, [*reduction, *block])
    loads = gathers = 0.0
    conflicts, pages = [], []
    for access in reads:
        count, gathered = _loads(access, tile, axis, vectors)
        loads += count
        gathers += gathered
        conflict, page = _sets(access, deep)
        conflicts.append(conflict)
        pages.append(page)
    row = {
        "accumulators": _log(held / lanes * vectors),
        "accumulator_reuse": _log(_product(reduction)),
        "block_loads": _log(loads),
        "block_loads_per_fma": log2(max(loads, 1e-3) / fmas),
        "block_gathers": _log(gathers),
        "set_conflict_max": _log(max(conflicts, default=0.0)),
        "set_conflict_sum": _log(sum(conflicts)),
        "pages_max": _log(max(pages, default=0.0)),
        "vector_waste": vectors * LANES / lanes,
    }
    walk = next((x for x in reversed(loops) if x.kind == "R"), None)
    beside = next((x for x in reversed(block) if x is not vector), None)
    for name, loop in (("reduce", walk), ("spatial", beside)):
        for k in range(2):
            known = loop is not None and bool(loop.parts) and k < len(reads)
            row[f"{name}_stride_{k}"] = _log(_stride(reads[k], loop.parts[-1][0])) if known else -1.0  # type: ignore[union-attr]
    return row


def _vector(loops: Sequence[Loop]) -> tuple[Loop | None, int, int, int]:
    """Return the vectorised loop, its lanes, the registers they fill, and its iterator (or -1)."""
    vector = next((x for x in reversed(loops) if x.ann == VECTORIZE), None)
    lanes = max(1, vector.extent) if vector is not None else 1
    axis = vector.parts[-1][0] if vector is not None and vector.parts else -1
    return vector, lanes, -(-lanes // LANES), axis


def _log(x: float) -> float:
    return log2(1.0 + x) if x > 0 else 0.0


def _product(loops: Any) -> float:
    total = 1.0
    for x in loops:
        total *= max(1, x.extent)
    return total


def _innermost_of_kind(loops: Sequence[Loop], kind: str) -> tuple[Sequence[Loop], Sequence[Loop]]:
    """Return the innermost loops of one kind, and the loops outside of them."""
    at = len(loops)
    while at and loops[at - 1].kind == kind:
        at -= 1
    return loops[at:], loops[:at]


def _tile(iters: Sequence[Any], loops: Sequence[Loop]) -> list[float]:
    """Return the extent of each iterator within `loops`."""
    tile = [1.0] * len(iters)
    for x in loops:
        for it, extent in x.parts:
            if 0 <= it < len(tile) and extent > 0:
                tile[it] = min(tile[it] * extent, max(1, iters[it].extent))
    return tile


def _extents(access: Any, tile: Sequence[float]) -> list[float]:
    sizes = []
    for k, dim in enumerate(access.dims):
        extent = 1.0
        for it, coefficient in dim:
            extent += max(1, abs(coefficient)) * (tile[it] - 1)
        sizes.append(min(extent, access.shape[k]) if k < len(access.shape) and access.shape[k] else extent)
    return sizes


def _loads(access: Any, tile: Sequence[float], axis: int, vectors: int) -> tuple[float, float]:
    """Return a read's register loads for a block, repeated ones counted once, and those that gather."""
    count, role = 1.0, 0.0  # 0 broadcast, 1 contiguous, 2 strided
    for k, dim in enumerate(access.dims):
        extent = 1.0
        for it, coefficient in dim:
            if it == axis:
                role = 1.0 if k == len(access.dims) - 1 and abs(coefficient) == 1 else 2.0
                if role == 1.0:
                    extent *= max(1.0, tile[it] / LANES / vectors) * vectors
                    continue
            extent *= tile[it]
        count *= extent
    return count, count if role == 2.0 else 0.0


def _strides(access: Any) -> list[int]:
    """Return the byte stride of each dimension of a row-major tensor."""
    strides, step = [], 4
    for size in reversed(access.shape[: len(access.dims)]):
        strides.append(step)
        step *= max(1, size)
    return strides[::-1]


def _sets(access: Any, tile: Sequence[float]) -> tuple[float, float]:
    """Return the block's lines that compete for one set of the first-level cache, and its pages."""
    conflict = pages = 1.0
    for extent, stride in zip(_extents(access, tile), _strides(access), strict=False):
        if extent > 1 and stride >= 64:
            conflict *= max(1.0, extent * gcd(stride, PAGE_BYTES) / PAGE_BYTES)
            if stride >= PAGE_BYTES:
                pages *= extent
            else:
                pages *= max(1.0, extent * stride / PAGE_BYTES)
    return conflict, pages


def _stride(access: Any, iterator: int) -> float:
    strides = _strides(access)
    for dim, stride in zip(access.dims, strides, strict=False):
        for it, coefficient in dim:
            if it == iterator:
                return float(stride * max(1, abs(coefficient)))
    return 0.0


# Loads that remain after unrolling and loop-invariant code motion.
# The code generator unrolls the innermost loops up to the pragma's number. The unrolled body loads each
# element once, and elements that the loop around it does not change are loaded before that loop. So gathers
# of 48 distant columns of weights happen once for 64 rows if that loop is over rows, and 64 times if it is
# over columns.


MIN_PER_FMA = 1e-4  # lower bound of loads or stores per multiply, before the logarithm


def unrolled(main: StageState, loops: Sequence[Loop]) -> tuple[int, float]:
    """Return the number of the first loop in the unrolled body, and the body's statements."""
    start, body = len(loops), 1.0
    for x in reversed(loops):
        if x.ann != VECTORIZE:
            if body * x.extent > max(main.unroll, 1) and x.ann != UNROLL:
                break
            body *= x.extent
        start -= 1
    return start, body


def body_features(
    main: StageState, loops: Sequence[Loop], start: int, reads: Sequence[Any]
) -> dict[str, float]:
    """Return the columns of the heaviest stage's unrolled body.

    Parameters
    ----------
    main : StageState
        The stage; its source is known.
    loops : sequence of Loop
        Its loops longer than one, outermost first.
    start : int
        Number of the body's first loop (`unrolled`).
    reads : sequence of Access

    Returns
    -------
    dict
        By the names of `table.BODY`, as log2. Loads, gathers (by element) and stores of the output
        are per vector multiply; `body_held` counts registers of values hoisted out of the body.
    """
    src = main.source
    assert src is not None
    _, lanes, vectors, axis = _vector(loops)
    tile = _tile(src.iters, loops[start:])
    fmas = max(1.0, _product(loops[start:]) / lanes * vectors)
    loads = gathers = held = 0.0
    for access in reads:
        runs = _invariant_iterations(loops[:start], {it for dim in access.dims for it, _ in dim})
        count, gathered = _loads(access, tile, axis, vectors)
        loads += count / runs
        gathers += gathered / runs
        if runs > 1:
            held += count * vectors / lanes if gathered else count
    spatial = {n for n, i in enumerate(src.iters) if i.kind == "S"}
    runs = _invariant_iterations(loops[:start], spatial)
    stores = 1.0
    for it in sorted(spatial):
        stores *= tile[it]
    if axis in spatial:
        stores *= vectors / lanes
    held += stores if runs > 1 else 0.0
    return {
        "body_loads_per_fma": log2(max(loads / fmas, MIN_PER_FMA)),
        "body_gathers_per_fma": log2(max(gathers / fmas, MIN_PER_FMA)),
        "body_stores_per_fma": log2(max(stores / runs / fmas, MIN_PER_FMA)),
        "body_held": _log(held),
    }


def _invariant_iterations(outside: Sequence[Loop], iterators: set[int]) -> float:
    """Return the iterations of the loops directly around the body that change none of these iterators."""
    runs = 1.0
    for x in reversed(outside):
        if any(it in iterators and extent > 1 for it, extent in x.parts):
            break
        runs *= max(1, x.extent)
    return runs


# A small analytical cache model of the heaviest stage: working set and traffic at each loop depth.


CACHE_BYTES = (32 << 10, 1 << 20, 16 << 20)  # bytes
CACHE_LEVELS = ("l1", "l2", "l3")
LINE_ELEMENTS = 16  # elements


def traffic(main: StageState, loops: list[Any]) -> dict[str, float]:
    """Return the iterations whose working set fits each cache, and the cache lines moved into it."""
    src = main.source
    assert src is not None
    tile = [1.0] * len(src.iters)
    out_dims = [((n, 1),) for n, i in enumerate(src.iters) if i.kind == "S"]
    accesses = [(a.dims, a.shape) for a in main.reads]
    accesses.append((tuple(out_dims), tuple(i.extent for i in src.iters if i.kind == "S")))

    def working_set() -> float:
        total = 0.0
        for dims, shape in accesses:
            size = 1.0
            for k, dim in enumerate(dims):
                extent = 1.0
                for it, coefficient in dim:
                    extent += max(1, abs(coefficient)) * (tile[it] - 1)
                extent = min(extent, shape[k]) if k < len(shape) and shape[k] else extent
                if k == len(dims) - 1:
                    extent = -(-extent // LINE_ELEMENTS) * LINE_ELEMENTS
                size *= extent
            total += size * 4
        return total

    iterations = 1.0
    best: list[tuple[float, float]] = [(1.0, working_set())] * len(CACHE_BYTES)
    for x in reversed(loops):
        for it, extent in x.parts:
            if 0 <= it < len(tile) and extent > 0:
                tile[it] = min(tile[it] * extent, src.iters[it].extent)
        iterations *= max(1, x.extent)
        size = working_set()
        for k, cache in enumerate(CACHE_BYTES):
            if size <= cache:
                best[k] = (iterations, size)
    row: dict[str, float] = {}
    for name, (inside, size) in zip(CACHE_LEVELS, best, strict=True):
        row[f"fit_iterations_{name}"] = _log(inside)
        row[f"traffic_{name}"] = _log(size * max(1.0, iterations / inside) / 64)
        row[f"traffic_per_iteration_{name}"] = log2(size / inside)
    return row
