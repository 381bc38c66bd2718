"""A small analytical cache model of the heaviest stage: what each loop depth touches, and what that moves."""

from __future__ import annotations

from math import log2
from typing import Any

from wmsched.kernel_features import _log
from wmsched.schedules.loop_nest import StageState

CACHES = (32 << 10, 1 << 20, 16 << 20)  # bytes
LEVELS = ("l1", "l2", "l3")
LINE = 16  # elements

TRAFFIC_NAMES = (
    *(f"fit_iterations_{n}" for n in LEVELS),
    *(f"traffic_{n}" for n in LEVELS),
    *(f"traffic_per_iteration_{n}" for n in LEVELS),
)


def traffic(main: StageState, loops: list[Any]) -> dict[str, float]:
    """Iterations that fit each cache, and the lines moved into it, by working sets from the inside out."""
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
                    extent = -(-extent // LINE) * LINE
                size *= extent
            total += size * 4
        return total

    iterations = 1.0
    best: list[tuple[float, float]] = [(1.0, working_set())] * len(CACHES)
    for x in reversed(loops):
        for it, extent in x.parts:
            if 0 <= it < len(tile) and extent > 0:
                tile[it] = min(tile[it] * extent, src.iters[it].extent)
        iterations *= max(1, x.extent)
        size = working_set()
        for k, cache in enumerate(CACHES):
            if size <= cache:
                best[k] = (iterations, size)
    row: dict[str, float] = {}
    for name, (inside, size) in zip(LEVELS, best, strict=True):
        row[f"fit_iterations_{name}"] = _log(inside)
        row[f"traffic_{name}"] = _log(size * max(1.0, iterations / inside) / 64)
        row[f"traffic_per_iteration_{name}"] = log2(size / inside)
    return row
