"""Columns that only traces of MetaSchedule have, after those of phi."""

from __future__ import annotations

from wmsched.features.table.column import Column, Group


def _t(name: str, unit: str, meaning: str, formula: str, *, native: bool = True) -> Column:
    return Column(name, unit, meaning, formula, "MetaSchedule", native)


_BLOCKS = Group(
    "Traces: blocks and their primitives",
    "The main block is the one that computes with most iterations; iterations of a block with reads and a "
    "reduction count four times. NaN in `trace_decomposed_*` where the main block's initialisation is not "
    "split off, and in `trace_tensorize_volume` where no block computes.",
    (
        _t("trace_known", "0 or 1", "Every block and loop was followed.",
           "1 if no block that is not inlined has a loop of unknown extent"),
        _t("trace_blocks", "blocks", "Blocks that are left.", "blocks that are not inlined"),
        _t("trace_decomposed", "blocks", "Initialisations split off their reductions.",
           "blocks that DecomposeReduction made"),
        _t("trace_decomposed_inside", "log2(1 + iterations)",
           "Iterations of the main block between one initialisation and the next.",
           "product of the main block's loops that its initialisation does not share"),
        _t("trace_decomposed_copies", "log2(1 + iterations)",
           "How often the main block's initialisation is reached.",
           "product of the loops that the initialisation shares with the main block"),
        _t("trace_layout", "instructions", "Layout transformations of buffers and of blocks.",
           "TransformLayout + TransformBlockLayout"),
        _t("trace_reindex", "instructions", "ReIndex instructions.",
           "ReIndex"),
        _t("trace_pipeline", "0 or 1", "A software pipeline is asked for.",
           "1 if something is annotated with software_pipeline_stage"),
        _t("trace_tensorized", "instructions", "Tensorize instructions.",
           "Tensorize"),
        _t("trace_tensorize_volume", "log2(1 + iterations)",
           "Iterations that one call of the main block's tensor intrinsic does; 0 without one.",
           "product of the main block's tensorized loops"),
        _t("trace_intrinsics", "intrinsics", "Different tensor intrinsics.",
           "distinct names among the blocks"),
    ),
)  # fmt: skip

_GRID = Group(
    "Traces: what a GPU is given",
    "For the kernel of the main block: the blocks under its blockIdx and threadIdx loops. Iterations and "
    "elements are of loops of one thread unless a formula says otherwise. NaN where the main block is "
    "bound to no blockIdx or threadIdx.",
    (
        _t("gpu_threads", "log2(1 + threads)", "Threads of a thread block.",
           "product of threadIdx.x, .y and .z; of each the last in the kernel"),
        _t("gpu_blocks", "log2(1 + thread blocks)", "Thread blocks of the grid.",
           "product of the main block's blockIdx loops"),
        _t("gpu_vthreads", "log2(1 + vthreads)", "Virtual threads of a thread.",
           "product of the main block's vthread loops"),
        _t("gpu_waves", "log2(1 + waves)", "Thread blocks for each multiprocessor, not rounded.",
           "blocks / cores"),
        _t("gpu_warps", "log2(1 + warps)", "Warps of a thread block.", "ceil(threads / warp size)"),
        _t("gpu_warp_full", "share", "Lanes of the warps that have a thread.",
           "threads / (warps * warp size)"),
        _t("gpu_thread_work", "log2(1 + iterations)", "Iterations of the main block that a thread does.",
           "product of its loops / (blocks * threads)"),
        _t("gpu_shared_bytes", "log2(1 + bytes)", "Bytes of shared memory that the kernel's copies fill.",
           "sum over cache reads into shared memory of the product of their own loops * bytes of an element"),
        _t("gpu_shared_share", "fraction of the limit",
           "The same bytes beside the shared memory that a thread block may have; over 1 it does not fit.",
           "shared bytes / parameter 3 of the hardware, else 48 KiB"),
        _t("gpu_local_elements", "log2(1 + elements)", "Elements that a thread holds by itself.",
           "sum over cache reads into local memory of the product of their own loops, "
           "+ product of the main block's spatial loops that are bound to no grid or thread index"),
        _t("gpu_reduce_steps", "log2(1 + iterations)", "Steps of the outermost reduction.",
           "extent of the main block's outermost reduction loop; 1 without one"),
        _t("gpu_fetch_vector", "elements", "Elements that a cooperative fetch loads at once; 0 without one.",
           "largest number annotated to a copy into shared memory"),
        _t("gpu_fetch_rounds", "log2(1 + iterations)",
           "Iterations in which a thread copies into shared memory.",
           "sum over these copies of the product of their own loops that are neither threads, vthreads nor "
           "vectorised"),
        _t("gpu_flops_per_byte", "log2(operations / byte)",
           "Arithmetic for each byte that a thread block copies into shared memory; NaN if it copies none.",
           "2 * product of the main block's loops / blocks / (shared bytes * reduce steps)"),
    ),
)  # fmt: skip

CARD = Group(
    "Traces: the GPU's data sheet",
    "What h has no column for. Equal for all candidates of a workload; NaN on a CPU and for a GPU that "
    "`features.gpus` does not know.",
    (
        _t("gpu_capability", "compute capability", "Compute capability as a number, 8.9 for sm_89.",
           "digits of the architecture / 10", native=False),
        _t("gpu_bandwidth", "log2(GB/s)", "Bandwidth of the GPU's memory.", "by its data sheet",
           native=False),
        _t("gpu_registers", "log2(1 + registers)", "Registers of 32 bits of a multiprocessor.",
           "by its data sheet", native=False),
        _t("gpu_shared_limit", "log2(1 + bytes)",
           "Shared memory that a thread block may have after opting in.", "by its data sheet",
           native=False),
    ),
)  # fmt: skip

TRACES: tuple[Group, ...] = (_BLOCKS, _GRID, CARD)
