"""phi of MetaSchedule traces: `table.FEATURE_NAMES` with the same meaning, and columns for traces only.

Trace instructions are counted under the AutoScheduler step that does the same. The loops of a finished trace
go through the same functions as AutoScheduler's. The cache-model columns are NaN for a main block whose
iterators a layout transformation replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.features.batch.columns import main_columns
from wmsched.features.batch.loops import Depths, fits
from wmsched.features.hardware import gpu_columns
from wmsched.features.kernel import _log, _product
from wmsched.features.step_features import _INDEX, _actions, _main, _structure, heaviest, operation
from wmsched.features.table import TRACE_NAMES
from wmsched.schedules.loop_nest import UNROLL, VECTORIZE, LoopNest, StageState
from wmsched.schedules.trace_blocks import THREADS, Block
from wmsched.schedules.trace_nest import TENSORIZE, TraceNest, as_stages
from wmsched.schedules.types import Workload

#: AutoScheduler's step code of each kind of instruction.
STEP_CODES = {
    "Split": "SP", "Fuse": "FU", "Reorder": "RE", "ComputeAt": "CA", "ReverseComputeAt": "CA",
    "ComputeInline": "CI", "ReverseComputeInline": "CI", "CacheRead": "CHR", "CacheWrite": "CHW",
    "RFactor": "RF", "StorageAlign": "SA", "Parallel": "AN", "Vectorize": "AN", "Unroll": "AN", "Bind": "AN",
}  # fmt: skip

_TRACE_INDEX = {name: k for k, name in enumerate(TRACE_NAMES)}
_ITERATOR_COLUMNS = [  # columns that need the operation's own iterators
    k
    for name, k in _INDEX.items()
    if name.startswith(("fit_", "traffic_", "main_vector_read", "main_vector_last"))
]
_BLOCK_IDX = frozenset((5, 7, 9))
_THREAD_IDX = THREADS - {4}


class _View(LoopNest):
    """A finished trace in the form of AutoScheduler's nest."""

    def __init__(self, stages: list[StageState], known: bool) -> None:
        super().__init__()
        self.stages, self.known = stages, known


def trace_features(
    steps_list: Sequence[Sequence[Sequence[Any]]],
    workload: Workload,
    *,
    worded: bool = True,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray, list[list[str]]]:
    """Return phi, the trace columns and the action texts of many candidates of one workload.

    Parameters
    ----------
    worded : bool
        Whether to make full texts; otherwise most have only the action's kind.
    threads : int
        As for `step_features.features`.

    Returns
    -------
    phi : float32 [N, len(FEATURE_NAMES)]
    extra : float32 [N, len(TRACE_NAMES)]
    texts : N lists of one text an action
    """
    phi = np.full((len(steps_list), len(_INDEX)), nan, np.float32)
    extra = np.full((len(steps_list), len(TRACE_NAMES)), nan, np.float32)
    texts: list[list[str]] = []
    cores = machine_sizes(workload)[0]
    gpu = gpu_columns(workload.target)
    laid: dict[Any, list[tuple[int, StageState]]] = {}
    vague: list[int] = []
    for n, steps in enumerate(steps_list):
        nest = TraceNest(workload.stages, worded=worded)
        texts.append([nest.apply(step) for step in steps])
        row = _counts(nest, len(steps))
        view = _View(as_stages(nest), nest.known)
        row.update(_structure(view, cores, threads))
        if nest.known:
            state, live = heaviest(view)
            together = state is not None and fits(state)
            row.update(_main(view, state, live, workload, cores, depths=not together))
            if state is not None and together:
                laid.setdefault((id(state.source), id(state.reads)), []).append((n, state))
        main = _main_block(nest)
        if main is not None and main.vague:
            vague.append(n)
        if main is not None and main.origin is not None:  # these columns are of the operation as it was
            row.update(operation(main.origin, main.origin.reads, workload))
        for name, value in row.items():
            phi[n, _INDEX[name]] = value
        for name, value in (_trace(nest, main, workload, cores) | gpu).items():
            extra[n, _TRACE_INDEX[name]] = value
    for members in laid.values():
        places = [n for n, _ in members]
        for name, values in main_columns(Depths.of([state for _, state in members])).items():
            phi[places, _INDEX[name]] = values
    phi[np.ix_(vague, _ITERATOR_COLUMNS)] = nan
    return phi, extra, texts


def _counts(nest: TraceNest, steps: int) -> dict[str, float]:
    row = _actions([])
    for kind, count in nest.counts.items():
        if kind in STEP_CODES:
            row[f"count_{STEP_CODES[kind]}"] += count
    for block in nest.blocks:
        for loop in {id(x): x for x in (*block.nest, *block.tail)}.values():
            if loop.owner is not block:
                continue
            name = {UNROLL: "unroll", VECTORIZE: "vectorize", 3: "parallel", 4: "vthread"}.get(loop.ann)
            if name or loop.ann in _BLOCK_IDX or loop.ann in _THREAD_IDX:
                row[f"count_ann_{name or 'bind'}"] += 1
    row["count_PR"] = sum(b.unroll > 0 for b in nest.blocks)
    row["steps"] = steps
    for k, x in enumerate(nest.splits[:8]):
        row[f"split_{k}"] = _log(x)
    return row


def _main_block(nest: TraceNest) -> Block | None:
    """Return the computing block with most work, chosen as `step_features.heaviest` chooses a stage."""
    live = [
        b for b in nest.blocks if b.source is not None and not b.inlined and b.role in ("compute", "rfactor")
    ]

    def work(block: Block) -> float:
        assert block.source is not None
        total = 1.0
        for i in block.source.iters:
            total *= i.extent
        return total * (4 if block.reads and any(i.kind == "R" for i in block.source.iters) else 1)

    return max(live, key=work, default=None)


def _trace(nest: TraceNest, main: Block | None, workload: Workload, cores: int) -> dict[str, float]:
    count = nest.counts.get
    inits = [b for b in nest.blocks if b.role == "init"]
    row: dict[str, float] = {
        "trace_known": float(not any(x.extent == 0 for b in nest.blocks if not b.inlined for x in b.nest)),
        "trace_blocks": sum(not b.inlined for b in nest.blocks),
        "trace_decomposed": len(inits),
        "trace_layout": count("TransformLayout", 0) + count("TransformBlockLayout", 0),
        "trace_reindex": count("ReIndex", 0),
        "trace_pipeline": float("software_pipeline_stage" in nest.marks),
        "trace_tensorized": count("Tensorize", 0),
        "trace_intrinsics": len({b.intrinsic for b in nest.blocks if b.intrinsic}),
    }
    if main is None:
        return row
    loops = [*main.nest, *main.tail]
    mine = next((b for b in inits if f"{b.name.removesuffix('_init')}_update" == main.name), None)
    if mine is not None:
        shared = sum(x in main.nest for x in mine.nest)
        row["trace_decomposed_inside"] = _log(_product(main.nest[shared:]))
        row["trace_decomposed_copies"] = _log(_product(mine.nest[:shared]))
    row["trace_tensorize_volume"] = (
        _log(_product([x for x in loops if x.ann == TENSORIZE]))
        if any(x.ann == TENSORIZE for x in loops)
        else 0.0
    )
    if any(x.ann in _BLOCK_IDX or x.ann in _THREAD_IDX for x in loops):
        row.update(_gpu(nest, main, workload, cores))
    return row


def machine_sizes(workload: Workload) -> tuple[int, int, int]:
    """Return cores (multiprocessors of a GPU), warp size, and bytes of shared memory of a block."""
    given = dict(enumerate(workload.hardware))
    known = ((given.get(place, 0), other) for place, other in ((0, 1), (7, 32), (3, 48 << 10)))
    cores, warp, shared = (value if value > 0 else other for value, other in known)
    return cores, warp, shared


def _gpu(nest: TraceNest, main: Block, workload: Workload, cores: int) -> dict[str, float]:
    """Return the GPU columns: grid, and work and memory of a thread block."""
    loops = [*main.nest, *main.tail]
    blocks = _product([x for x in loops if x.ann in _BLOCK_IDX])
    ours = {id(x) for x in loops if x.ann in _BLOCK_IDX or x.ann in _THREAD_IDX}
    kernel = [b for b in nest.blocks if b is main or any(id(x) in ours for x in b.nest)]
    bound = {x.ann: x for b in kernel for x in b.nest if x.ann in _THREAD_IDX}
    threads = _product(list(bound.values()))
    vthreads = _product([x for x in loops if x.ann == 4])
    work = _product(loops) / max(1.0, blocks * threads)
    _, warp, limit = machine_sizes(workload)
    shared = local = 0.0
    rounds, fetch = 0.0, 0
    for block in kernel:
        scope = block.writes.scope
        if block.inlined or block.role == "init":
            continue
        own = [x for x in (*block.nest, *block.tail) if x.owner is block]
        if scope.startswith("shared") and block.role == "cache_read":
            shared += _product(own) * block.writes.nbytes
            rounds += _product([x for x in own if x.ann not in THREADS and x.ann != VECTORIZE])
            fetch = max(fetch, block.fetch)
        elif scope == "local" and block.role == "cache_read":
            local += _product(own)
    inner = [x for x in loops if x.kind == "S" and x.ann not in _BLOCK_IDX and x.ann not in _THREAD_IDX]
    local += _product(inner)
    outer_reduce = [x for x in main.nest if x.kind == "R"]
    per_block = _product(loops) / max(1.0, blocks)
    steps = outer_reduce[0].extent if outer_reduce else 1
    moved = shared * max(1, steps)
    return {
        "gpu_threads": _log(threads),
        "gpu_blocks": _log(blocks),
        "gpu_vthreads": _log(vthreads),
        "gpu_waves": log2(1 + blocks / max(1, cores)),
        "gpu_warps": _log(-(-threads // warp)),
        "gpu_warp_full": threads / (-(-threads // warp) * warp),
        "gpu_thread_work": _log(work),
        "gpu_shared_bytes": _log(shared),
        "gpu_shared_share": shared / limit,
        "gpu_local_elements": _log(local),
        "gpu_reduce_steps": _log(steps),
        "gpu_fetch_vector": float(fetch),
        "gpu_fetch_rounds": _log(rounds),
        "gpu_flops_per_byte": log2(2 * per_block / moved) if moved else nan,
    }


# phi of many traces at once, from the columns that the C++ reader (`metaschedule/native`) computes of each.
# `trace_features` defines the columns and computes them one trace at a time.


Floats = NDArray[np.float32]


class TraceBatch:
    """Assembles phi for candidates of one workload from the C++ reader's columns.

    Parameters
    ----------
    workload : Workload
        A workload with stages.
    names : sequence of K str
        The columns that the reader computes.

    Raises
    ------
    ValueError
        The workload has no stages, or a name is no column of phi.

    Examples
    --------
    >>> batch = TraceBatch(workload, reader.names)
    >>> phi, extra = batch(stages, columns)
    """

    def __init__(self, workload: Workload, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in _INDEX and name not in _TRACE_INDEX]
        if unknown or not workload.stages:
            raise ValueError(f"no stages, or columns that are not phi's: {unknown[:5]}")
        # The columns that all schedules of an operation share: one row a stage.
        self._phi = np.full((len(workload.stages), len(_INDEX)), np.nan, np.float32)
        self._extra = np.full(len(_TRACE_INDEX), np.nan, np.float32)
        for row, stage in zip(self._phi, workload.stages):
            for name, value in (_actions([]) | operation(stage, stage.reads, workload)).items():
                row[_INDEX[name]] = value
        for name, value in gpu_columns(workload.target).items():
            self._extra[_TRACE_INDEX[name]] = value
        self._take, self._put = _column_numbers(names, _INDEX)
        self._take_extra, self._put_extra = _column_numbers(names, _TRACE_INDEX)

    def __call__(self, stages: NDArray[Any], columns: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return phi float32 [N, P] and the trace columns float32 [N, E].

        Parameters
        ----------
        stages : int64 [N]
            Number of the heaviest stage among the workload's.
        columns : float64 [N, K]
        """
        phi, extra = self._phi[stages], np.tile(self._extra, (len(stages), 1))
        phi[:, self._put] = columns[:, self._take]
        extra[:, self._put_extra] = columns[:, self._take_extra]
        return phi, extra


def _column_numbers(names: Sequence[str], index: dict[str, int]) -> tuple[list[int], list[int]]:
    """Return the positions of names that are in `index`: in the reader's columns, and in `index`."""
    return [k for k, name in enumerate(names) if name in index], [index[x] for x in names if x in index]
