"""Operator of a workload, for per-operator tables of an evaluation."""

from __future__ import annotations

import re

from wmsched.schedules.types import Stage, Workload

#: (pattern in the workload's description, operator); the first match wins.
_NAMES: tuple[tuple[str, str], ...] = (
    (r"conv3d", "conv3d"),
    (r"conv2d_transpose", "conv2d transpose"),
    (r"winograd", "conv2d winograd"),
    (r"conv2d_NCHWc", "conv2d NCHWc"),
    (r"conv2d", "conv2d"),
    (r"batch_matmul", "batch matmul"),
    (r"dense|matmul", "dense"),
    (r"softmax", "softmax"),
    (r"global_avg_pool|_pool\d?d|pool", "pooling"),
    (r"mean|variance|norm|sum", "mean"),
)


def operator(workload: Workload) -> str:
    """Return the workload's operator, by its description and, for depthwise convolutions, its loops.

    Returns
    -------
    str
        "other" if the table has no match, "unknown" without a description.
    """
    if not workload.desc:
        return "unknown"
    name = next((name for pattern, name in _NAMES if re.search(pattern, workload.desc)), "other")
    if name.startswith("conv2d") and _depthwise(workload.stages):
        return "depthwise conv2d"
    return name


def _depthwise(stages: tuple[Stage, ...]) -> bool:
    """Return whether a convolution's heaviest stage reduces over its window only, not over channels."""
    best, most = None, 0.0
    for stage in stages:
        work = 1.0
        for item in stage.iters:
            work *= item.extent
        if any(item.kind == "R" for item in stage.iters) and work > most:
            best, most = stage, work
    if best is None:
        return False
    reduced = {n for n, item in enumerate(best.iters) if item.kind == "R"}
    window = {  # reduction iterators that index an axis together with a spatial one
        it
        for access in best.reads
        for dim in access.dims
        for it, _ in dim
        if it in reduced and any(other not in reduced for other, _ in dim)
    }
    # a 1x1 window has extent 1 and may be absent from the index, so only real reductions count
    return bool(reduced) and all(n in window or best.iters[n].extent == 1 for n in reduced)
