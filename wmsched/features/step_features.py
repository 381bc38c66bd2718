"""phi(a_1:T): named columns computed from a candidate's steps and loop nests (paper, 3.5), without TVM.

The columns are counts and sizes of the actions, the final loop structure, and an analytical cache model of
the heaviest stage. The model has the working set at each loop depth and the traffic into three cache sizes.
Columns that need the compute DAG are NaN where it is unknown, which XGBoost treats as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np

from wmsched.features.kernel import (
    LINE_ELEMENTS,
    _log,
    body_features,
    kernel_features,
    traffic,
    unrolled,
)
from wmsched.features.parallel import SLOWDOWN, slowdown
from wmsched.features.table import FEATURE_NAMES
from wmsched.schedules.loop_nest import PARALLEL, VECTORIZE, LoopNest, StageState
from wmsched.schedules.steps import STEP_FIELDS
from wmsched.schedules.types import Access, Stage, Workload

#: Raised when a column's meaning changes; bundles with another value are refused. New columns need no new
#: version, because older bundles leave them out.
PHI_VERSION = 2
_CODES = tuple(STEP_FIELDS)
_INNER = 8

_INDEX = {n: k for k, n in enumerate(FEATURE_NAMES)}


def features(
    steps_list: Sequence[Sequence[Sequence[Any]]], workload: Workload, *, threads: int = 1
) -> tuple[np.ndarray, list[list[str]]]:
    """Return phi and the action texts of many candidates of one workload, in one pass over their steps.

    Parameters
    ----------
    threads : int
        Threads that programs run on (`hardware.run_threads`), for `SLOWDOWN`. The other columns use the
        workload's cores, which `rows.RowBuilder` may set to those that the ranker was trained on.

    Returns
    -------
    phi : float32 [N, P]
        P is ``len(FEATURE_NAMES)``; sizes are log2(1 + x).
    texts : N lists of one text an action
    """
    out = np.full((len(steps_list), len(FEATURE_NAMES)), nan, np.float32)
    texts: list[list[str]] = []
    cores = workload.hardware[0] if workload.hardware and workload.hardware[0] > 0 else 1
    for n, steps in enumerate(steps_list):
        nest = LoopNest(workload.stages)
        texts.append([nest.apply(s) for s in steps])
        row = _actions(steps)
        row.update(_structure(nest, cores, threads))
        if nest.known:
            row.update(_main(nest, *heaviest(nest), workload, cores))
        for name, value in row.items():
            out[n, _INDEX[name]] = value
    return out, texts


def action_texts(steps_list: Sequence[Sequence[Sequence[Any]]], workload: Workload) -> list[list[str]]:
    """Return only the action texts of `features`."""
    texts = []
    for steps in steps_list:
        nest = LoopNest(workload.stages)
        texts.append([nest.apply(s) for s in steps])
    return texts


def without_depths(steps: Sequence[Sequence[Any]], nest: LoopNest, workload: Workload) -> np.ndarray:
    """Return phi float32 [P] of one candidate and its nest, without the columns of the cache model (NaN)."""
    out = np.full(len(FEATURE_NAMES), nan, np.float32)
    cores = workload.hardware[0] if workload.hardware and workload.hardware[0] > 0 else 1
    row = (
        _actions(steps)
        | _structure(nest, cores, 1)
        | _main(nest, *heaviest(nest), workload, cores, depths=False)
    )
    for name, value in row.items():
        out[_INDEX[name]] = value
    return out


def _actions(steps: Sequence[Sequence[Any]]) -> dict[str, float]:
    row: dict[str, float] = {f"count_{c}": 0.0 for c in _CODES}
    for name in ("unroll", "vectorize", "parallel", "vthread", "bind"):
        row[f"count_ann_{name}"] = 0.0
    splits: list[int] = []
    for step in steps:
        code = step[0]
        if f"count_{code}" in row:
            row[f"count_{code}"] += 1
        if code == "AN":
            _, _, _, number = step
            kind = {1: "unroll", 2: "vectorize", 3: "parallel", 4: "vthread"}.get(number, "bind")
            row[f"count_ann_{kind}"] += 1
        elif code == "SP" and len(splits) < 8:
            _, _, _, _, lengths, _ = step
            splits.extend(x or 0 for x in lengths)
    row["steps"] = len(steps)
    for k, x in enumerate(splits[:8]):
        row[f"split_{k}"] = _log(x)
    return row


def _vector(s: StageState) -> int:
    return max((x.extent for x in s.loops if x.ann == VECTORIZE), default=0)


def _structure(nest: LoopNest, cores: int, threads: int) -> dict[str, float]:
    live = [s for s in nest.stages if s.role != "placeholder" and not s.inlined]
    roots = [s for s in live if s.at is None]
    par = [max((x.extent for x in s.loops if x.ann == PARALLEL), default=0) for s in live]
    best = max(par, default=0)
    waves = -(-best // cores) if best else 0
    root_work = sum(s.work() for s in roots) or 1.0
    serial = sum(s.work() for s in roots if not any(x.ann == PARALLEL for x in s.loops))
    total = sum(s.work() for s in live) or 1.0
    return {
        "stages": len(nest.stages),
        "inlined": sum(s.inlined for s in nest.stages),
        "roots": len(roots),
        "attached": len(live) - len(roots),
        "cache_stages": sum(s.role in ("cache_read", "cache_write") for s in nest.stages),
        "rfactor": sum(s.role == "rfactor" for s in nest.stages),
        "parallel_max": _log(best),
        "parallel_balance": best / (waves * cores) if waves else 0.0,
        "parallel_waves": _log(waves),
        "serial_root_share": serial / root_work,
        "unroll_max": _log(max((s.unroll for s in live), default=0)),
        "vector_stage_share": sum(s.work() for s in live if _vector(s)) / total,
        SLOWDOWN: slowdown(live, threads),
    }


def heaviest(nest: LoopNest) -> tuple[StageState | None, list[StageState]]:
    """Return the stage of phi's cache model and all computing stages; None and [] without one."""
    compute = [
        s for s in nest.stages if s.source is not None and s.role != "placeholder" and s.role != "copy"
    ]
    live = [s for s in compute if not s.inlined] or compute
    if not live:
        return None, []
    main = max(
        live, key=lambda s: _total(s) * (1 + 3 * bool(s.reads and any(x.kind == "R" for x in s.loops)))
    )
    return main, live


def _main(
    nest: LoopNest,
    main: StageState | None,
    live: list[StageState],
    workload: Workload,
    cores: int,
    *,
    depths: bool = True,
) -> dict[str, float]:
    """Return the columns of the `heaviest` stage; `depths` includes the cache model, which is slowest."""
    if main is None:
        return {}
    src = main.source
    assert src is not None
    loops = [x for x in main.loops if x.extent != 1]
    last_axis = max((n for n, i in enumerate(src.iters) if i.kind == "S"), default=-1)
    row = operation(src, main.reads, workload)
    row["unroll_main"] = _log(main.unroll)
    row["main_loops"] = len(loops)
    row["main_attached"] = float(main.at is not None)
    vec = next((x for x in reversed(main.loops) if x.ann == VECTORIZE), None)
    row["main_vector"] = _log(vec.extent if vec else 0)
    row["main_vector_full"] = vec.extent % LINE_ELEMENTS == 0 if vec else 0.0
    row["main_vector_last_axis"] = float(vec is not None and any(p[0] == last_axis for p in vec.parts))
    reads = sorted(main.reads, key=lambda a: -float(np.prod(a.shape, dtype=float)))
    for k in range(min(2, len(reads))):
        row[f"main_vector_read{k}"] = _stride(reads[k], vec.parts[-1][0]) if vec else -1.0
    # The innermost loops, innermost first: the code generator's kernel.
    for k, x in enumerate(reversed(loops[-_INNER:])):
        row[f"main_extent_{k}"] = _log(x.extent)
        if k < 4:
            row[f"main_reduction_{k}"] = float(x.kind == "R")
    inner = 1.0
    position = len(loops)
    while position and loops[position - 1].kind == "S":
        position -= 1
        inner *= loops[position].extent
    lanes = vec.extent if vec and vec.extent else 1
    reduce_inner = 1.0
    while position and loops[position - 1].kind == "R":
        position -= 1
        reduce_inner *= loops[position].extent
    row["main_inner_spatial"] = _log(inner)
    row["main_registers"] = _log(inner / lanes * -(-lanes // LINE_ELEMENTS))
    row["main_reduce_inner"] = _log(reduce_inner)
    start, body = unrolled(main, loops)
    row["unrolled_body"] = _log(body)
    row["unroll_saturates"] = float(body * lanes >= inner)
    if depths:
        row.update(traffic(main, loops))
        row.update(kernel_features(main, loops, reads))
        row.update(body_features(main, loops, start, reads))
    row.update(_neighbours(nest, main, live, cores))
    return row


def operation(src: Stage, reads: Sequence[Access], workload: Workload) -> dict[str, float]:
    """Return the columns that all schedules of an operation with these reads share."""
    spatial = reduce = 1.0
    for i in src.iters:
        if i.kind == "S":
            spatial *= i.extent
        else:
            reduce *= i.extent
    moved = sum(float(np.prod(a.shape, dtype=float)) for a in reads) + spatial
    return {
        "iterations": _log(spatial * reduce),
        "iterations_spatial": _log(spatial),
        "iterations_reduce": _log(reduce),
        "flops": _log(workload.flop_ct),
        "output_elements": _log(spatial),
        "reads": len(src.reads),
        "has_call": float(
            any(n.startswith(("exp", "tanh", "erf", "sqrt", "pow", "rsqrt")) for n, _ in src.ops)
        ),
        "has_max": float(any(n == "Max" for n, _ in src.ops)),
        "intensity": _log(spatial * reduce) - _log(moved),
    }


def _total(s: StageState) -> float:
    total = 1.0
    for i in s.source.iters if s.source else ():
        total *= i.extent
    return total


def _stride(access: Any, iterator: int) -> float:
    """Return how a vector along `iterator` reads a tensor: 0 broadcast, 1 contiguous, 2 strided."""
    for k, dim in enumerate(reversed(access.dims)):
        for it, coefficient in dim:
            if it == iterator:
                return 1.0 if k == 0 and abs(coefficient) == 1 else 2.0
    return 0.0


def _neighbours(nest: LoopNest, main: StageState, live: list[StageState], cores: int) -> dict[str, float]:
    row: dict[str, float] = {}
    consumer = main.at[0] if main.at else None
    if consumer is not None and main.at is not None:
        inside = 1.0
        for x in consumer.loops[main.at[1] + 1 :]:
            inside *= max(1, x.extent)
        row["consumer_vector"] = _log(_vector(consumer))
        row["consumer_tile"] = _log(inside)
        row["consumer_inner"] = _log(consumer.loops[-1].extent if consumer.loops else 0)
        row["consumer_contiguous"] = float(bool(consumer.loops) and consumer.loops[-1].ann == VECTORIZE)
        row["tile_per_core"] = _log(inside * cores)
        inner = 1.0
        for x in reversed(main.loops):
            if x.kind != "S":
                break
            inner *= max(1, x.extent)
        row["register_loads_per_iteration"] = inner / max(1.0, inside)
    helpers = [s for s in live if s is not main and s is not consumer]
    row["helper_roots"] = sum(s.at is None for s in helpers)
    row["helper_attached"] = sum(s.at is not None for s in helpers)
    recompute = 0.0
    for s in helpers:
        if s.at is not None:
            outer = 1.0
            for x in s.at[0].loops[: s.at[1] + 1]:
                outer *= max(1, x.extent)
            recompute = max(recompute, outer)
    row["helper_recompute"] = _log(recompute)
    row["helper_vector_share"] = sum(bool(_vector(s)) for s in helpers) / len(helpers) if helpers else 0.0
    return row
