"""phi's columns that depend on a candidate's numbers, for many candidates at once.

Each function is the array form of one in `step_features` or `features.kernel`, which define the columns.
Those drop loops of extent one; here they are masked where they matter. D is the number of loops of the
heaviest stage, innermost first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.features.batch.kernel import body_columns, kernel_columns, unrolled
from wmsched.features.batch.loops import Depths, Floats, R, S
from wmsched.features.batch.substitute import Numbers
from wmsched.features.kernel import CACHE_BYTES, CACHE_LEVELS, LINE_ELEMENTS
from wmsched.features.parallel import SLOWDOWN, slowdowns
from wmsched.features.step_features import _INNER

Columns = dict[str, NDArray[Any]]


def columns(numbers: Numbers, cores: int, threads: int) -> Columns:
    """Return columns of phi by name, each [N]; the other columns are the structure's."""
    found = _structure(numbers, cores, threads)
    found.update(main_columns(numbers))
    found.update(_neighbours(numbers, cores))
    return found


def log(x: NDArray[Any]) -> Floats:
    """Return log2(1 + x) for non-negative x."""
    return np.log2(1.0 + x)


def _structure(numbers: Numbers, cores: int, threads: int) -> Columns:
    best = numbers.parallels.max(axis=1, initial=0.0)
    waves = np.ceil(best / cores)
    work = numbers.works[:, None, :] * numbers.weights
    total, roots, serial, vectors = (work[:, k].sum(axis=1) for k in range(4))
    found: Columns = {f"split_{k}": log(numbers.lengths[:, k]) for k in range(8)}
    return found | {
        "parallel_max": log(best),
        "parallel_balance": best / np.maximum(waves * cores, 1.0),
        "parallel_waves": log(waves),
        "serial_root_share": serial / np.where(roots > 0, roots, 1.0),
        "unroll_max": log(numbers.unroll_max),
        "vector_stage_share": vectors / np.where(total > 0, total, 1.0),
        SLOWDOWN: slowdowns(work[:, 0], numbers.lanes, numbers.shared, threads),
    }


def main_columns(numbers: Depths) -> Columns:
    """Return the columns of the heaviest stage's own loops by name, each [N]."""
    extents, kind = numbers.extents, numbers.kind
    rows = np.arange(len(extents))
    there = extents != 1
    has_vector = numbers.vector >= 0
    vector = np.where(has_vector, extents[rows, numbers.vector], 0.0)
    lanes = np.maximum(vector, 1.0)
    # The innermost spatial loops, then the reductions around them.
    stops = (there & (kind != S)).cumsum(axis=1) > 0
    block = there & ~stops
    ends = (there & stops & (kind != R)).cumsum(axis=1) > 0
    reduction = there & stops & ~ends
    inner = np.where(block, extents, 1.0).prod(axis=1)
    found: Columns = {
        "unroll_main": log(numbers.unroll),
        "main_loops": there.sum(axis=1),
        "main_vector": log(vector),
        "main_vector_full": has_vector & (vector % LINE_ELEMENTS == 0),
        "main_inner_spatial": log(inner),
        "main_registers": log(inner / lanes * np.ceil(lanes / LINE_ELEMENTS)),
        "main_reduce_inner": log(np.where(reduction, extents, 1.0).prod(axis=1)),
    }
    order = np.argsort(~there, axis=1, kind="stable")[:, :_INNER]
    short = np.take_along_axis(extents, order, axis=1)
    short = np.where(np.take_along_axis(there, order, axis=1), short, np.nan)
    kinds = np.where(np.isnan(short), np.nan, np.take_along_axis(kind, order, axis=1) == R)
    for k in range(_INNER):
        missing = k >= short.shape[1]
        found[f"main_extent_{k}"] = np.full(len(rows), np.nan) if missing else log(short[:, k])
        if k < 4:
            found[f"main_reduction_{k}"] = np.full(len(rows), np.nan) if missing else kinds[:, k]
    until, body = unrolled(numbers, there)
    found["unrolled_body"] = log(body)
    found["unroll_saturates"] = body * lanes >= inner
    tiles = _tiles(numbers)
    found.update(_traffic(numbers, tiles))
    found.update(kernel_columns(numbers, there, block, reduction, tiles))
    found.update(body_columns(numbers, there, until, tiles))
    return found


def _tiles(numbers: Depths) -> Floats:
    """Return the extent of each iterator within the d innermost loops, [N, D + 1, I]."""
    most = np.array([float(i.extent) for i in numbers.source.iters])
    inside = np.minimum(numbers.tiles.cumprod(axis=1), most)
    return np.concatenate([np.ones((len(inside), 1, len(most))), inside], axis=1)


def _traffic(numbers: Depths, tiles: Floats) -> Columns:
    source = numbers.source
    out = [((n, 1),) for n, i in enumerate(source.iters) if i.kind == "S"]
    accesses = [(a.dims, a.shape) for a in numbers.reads]
    accesses.append((tuple(out), tuple(i.extent for i in source.iters if i.kind == "S")))
    sizes = np.zeros(tiles.shape[:2])
    for dims, shape in accesses:
        size = np.ones(tiles.shape[:2])
        for k, dim in enumerate(dims):
            extent = np.ones(tiles.shape[:2])
            for it, coefficient in dim:
                extent += max(1, abs(coefficient)) * (tiles[:, :, it] - 1)
            if k < len(shape) and shape[k]:
                extent = np.minimum(extent, shape[k])
            if k == len(dims) - 1:
                extent = np.ceil(extent / LINE_ELEMENTS) * LINE_ELEMENTS
            size *= extent
        sizes += size * 4
    rows = np.arange(len(tiles))
    iterations = np.concatenate([np.ones((len(rows), 1)), numbers.extents.cumprod(axis=1)], axis=1)
    found: Columns = {}
    for name, cache in zip(CACHE_LEVELS, CACHE_BYTES, strict=True):
        # Sizes grow from the inside out; if none fits, the innermost counts.
        depth = np.maximum((sizes <= cache).sum(axis=1) - 1, 0)
        inside, size = iterations[rows, depth], sizes[rows, depth]
        found[f"fit_iterations_{name}"] = log(inside)
        found[f"traffic_{name}"] = log(size * np.maximum(1.0, iterations[:, -1] / inside) / 64)
        found[f"traffic_per_iteration_{name}"] = np.log2(size / inside)
    return found


def _neighbours(numbers: Numbers, cores: int) -> Columns:
    inside, consumer_inner, vector, own = numbers.single.T
    blank = np.where(numbers.attached, 0.0, np.nan)
    return {
        "helper_recompute": log(numbers.helpers.max(axis=1, initial=0.0)),
        "consumer_vector": log(vector) + blank,
        "consumer_tile": log(inside) + blank,
        "consumer_inner": log(consumer_inner) + blank,
        "tile_per_core": log(inside * cores) + blank,
        "register_loads_per_iteration": own / np.maximum(1.0, inside) + blank,
    }
