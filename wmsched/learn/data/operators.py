"""Which operator a workload is: an evaluation says where a model ranks well and where it does not."""

from __future__ import annotations

import re

from wmsched.schedules.types import Stage, Workload

#: (pattern in the workload's description, operator); the first match rules.
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
    """The workload's operator, by its description and, for depthwise convolutions, by its loops.

    Returns
    -------
    str
        "other" for what the table does not know, "unknown" without a description.
    """
    if not workload.desc:
        return "unknown"
    name = next((name for pattern, name in _NAMES if re.search(pattern, workload.desc)), "other")
    if name.startswith("conv2d") and _depthwise(workload.stages):
        return "depthwise conv2d"
    return name


def _depthwise(stages: tuple[Stage, ...]) -> bool:
    """Whether the heaviest stage of a convolution reduces over its window alone, and over no channels."""
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
    window = {  # reduction iterators that slide over an axis together with a spatial one
        it
        for access in best.reads
        for dim in access.dims
        for it, _ in dim
        if it in reduced and any(other not in reduced for other, _ in dim)
    }
    # a 1x1 window has extent 1 and may be left out of the index: only what reduces something counts
    return bool(reduced) and all(n in window or best.iters[n].extent == 1 for n in reduced)
