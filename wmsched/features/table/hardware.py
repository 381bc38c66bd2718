"""h: the columns that say what machine a schedule is for."""

from __future__ import annotations

from wmsched.features.table.column import Column, Group


def _h(name: str, unit: str, meaning: str, formula: str) -> Column:
    return Column(f"h.{name}", unit, meaning, formula, native=False)


HARDWARE = Group(
    "h: the hardware",
    "Equal for all candidates of a workload. Read from the target's text and from the hardware parameters "
    "that AutoScheduler writes into a log; `features.hardware` has the table of processors, `features.gpus` "
    "that of GPUs. A value that neither gives is the default of the formula. Never NaN.",
    (
        _h("cores", "cores", "Cores of the processor, multiprocessors of a GPU.",
           "the target's -num-cores, else parameter 0 of the log, else 1; of a GPU by its data sheet, "
           "else 84 with CUDA or ROCm"),
        _h("vector_bytes", "bytes", "Width of a vector unit.",
           "parameter 1 of the log, else by -mcpu, -model and -mattr; 16 for a GPU"),
        _h("cache_line", "bytes", "Length of a cache line.", "parameter 2 of the log, else 64"),
        _h("is_gpu", "0 or 1", "The target is a GPU's.", "by the target's kind"),
        _h("avx512", "0 or 1", "The processor has AVX-512.", "by -mcpu, -model and -mattr; 0 for a GPU"),
        _h("arm", "0 or 1", "The processor is an ARM.",
           "aarch64 is in the target, arm in its -mtriple, or -mattr turns on neon"),
        _h("log2_l1_bytes", "log2(1 + bytes)", "First data cache of a core; of a GPU's multiprocessor.",
           "by -mcpu or -model; of a GPU by its data sheet, else 128 KiB"),
        _h("log2_l2_bytes", "log2(1 + bytes)", "Second cache of a core; of a whole GPU.",
           "by -mcpu or -model; of a GPU by its data sheet, else 4 MiB"),
        _h("log2_shared_memory", "log2(1 + bytes)", "Shared memory of a GPU's thread block.",
           "parameter 3 of the log, else the target's, else 48 KiB; 0 for a CPU"),
        _h("log2_local_memory", "log2(1 + bytes)", "Local memory of a GPU's thread block, as TVM has it.",
           "parameter 4 of the log, else 2^31 - 1; 0 for a CPU"),
        _h("log2_max_threads", "log2(1 + threads)", "Threads that a GPU's thread block may have.",
           "parameter 5 of the log, else the target's, else the GPU's, else 1024; 0 for a CPU"),
        _h("log2_max_vthread", "log2(1 + vthreads)", "Virtual threads that TVM allows on a GPU.",
           "parameter 6 of the log, else 8; 0 for a CPU"),
        _h("warp_size", "threads", "Threads of a GPU's warp.",
           "parameter 7 of the log, else the target's, else 32; 0 for a CPU"),
    ),
)  # fmt: skip
