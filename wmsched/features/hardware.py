"""Hardware features h (paper, section 3.5), from the target text and AutoScheduler's hardware tuple.

A log has both, and they may disagree: AutoScheduler writes the cores it measured with into the tuple, and the
user writes the machine's cores into the target. The target wins where it has a value, except for the vector
width, which comes from the tuple.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from wmsched.features.gpus import gpu_of
from wmsched.features.table import CARD
from wmsched.features.target_options import cpu_features_of, is_gpu, kind_of, option_of
from wmsched.schedules.traces import is_trace_key
from wmsched.schedules.types import Workload

#: (pattern of -mcpu or -model, vector bytes, AVX-512, L1 data and L2 bytes a core); the first match wins.
CORES: tuple[tuple[str, int, bool, int, int], ...] = (
    (r"sapphirerapids|emeraldrapids|graniterapids", 64, True, 48 << 10, 2 << 20),
    (r"icelake-server|tigerlake|rocketlake|icelake-client", 64, True, 48 << 10, 1280 << 10),
    (r"skylake-avx512|cascadelake|cooperlake|platinum", 64, True, 32 << 10, 1 << 20),
    (r"znver[45]|x86-64-v4", 64, True, 32 << 10, 1 << 20),
    (r"znver|epyc", 32, False, 32 << 10, 512 << 10),
    (r"core-avx2|haswell|broadwell|skylake|e5-2", 32, False, 32 << 10, 256 << 10),
    (r"alderlake|raptorlake|meteorlake|arrowlake|lunarlake|pantherlake", 32, False, 48 << 10, 1280 << 10),
    (r"graviton2|neoverse|cortex-a7[0-9]|apple", 16, False, 64 << 10, 1 << 20),
    (r"cortex-a", 16, False, 32 << 10, 512 << 10),
)
DEFAULT_CPU = (32, False, 32 << 10, 512 << 10)  # a CPU that is not in the table
GPU_L1, GPU_L2 = 128 << 10, 4 << 20  # bytes of an unknown multiprocessor, and of an unknown device
DEFAULT_SMS = 84  # multiprocessors of an unknown GPU; with 1, no reduction would be split over the grid
DATACENTRE_KINDS = ("cuda", "nvptx", "rocm")  # kinds for which DEFAULT_SMS is a fair guess


def hardware_parameters(target: str) -> tuple[int, ...]:
    """Return AutoScheduler's eight hardware parameters for a target without them (MetaSchedule's).

    Parameters
    ----------
    target : str
        The target as JSON (`toolchain.targets.target_text`) or as TVM's old text.

    Returns
    -------
    tuple of 8 int
        Cores (multiprocessors of a GPU), vector unit and cache line in bytes; then a GPU's shared and
        local memory in bytes, threads of a block, vthreads and warp size (0 on a CPU). Unknown GPUs get
        the commonest values, and -1 multiprocessors if they may be a phone's.
    """
    text = target.lower()
    if not is_gpu(target):
        cores = option_of(text, "num-cores")
        return (int(cores) if cores.isdigit() else 1, int(_vector(text)[0]), 64, 0, 0, 0, 0, 0)

    def number(*names: str, default: int) -> int:
        found = next((option_of(text, name) for name in names if option_of(text, name).isdigit()), "")
        return int(found) if found else default

    gpu = gpu_of(text)
    return (
        gpu.sms if gpu is not None else DEFAULT_SMS if kind_of(text) in DATACENTRE_KINDS else -1,
        16,
        64,
        number("max_shared_memory_per_block", default=48 << 10),
        (1 << 31) - 1,
        number("max_threads_per_block", "max_num_threads", default=gpu.max_threads if gpu else 1024),
        8,
        number("thread_warp_size", default=gpu.warp if gpu else 32),
    )


def run_threads(workload: Workload) -> int:
    """Return how many threads share a workload's parallel loops; 1 on a GPU.

    AutoScheduler's hardware parameters have the thread count. MetaSchedule only has the target's
    ``num-cores``, of which TVM uses half on x86.
    """
    if workload.threads:
        return workload.threads
    cores = workload.hardware[0] if workload.hardware else 1
    text = workload.target.lower()
    if cores <= 1 or is_gpu(text):
        return 1
    halved = is_trace_key(workload.key) and not re.search(r"aarch64|arm|apple|riscv", text)
    return max(1, cores // 2) if halved else cores


def gpu_columns(target: str) -> dict[str, float]:
    """Return the GPU columns that `table.HARDWARE_NAMES` lacks, for trace rankers; NaN on a CPU or if
    unknown.

    Sizes are log2(1 + x); bandwidth is log2 of GB/s.
    """
    gpu = gpu_of(target) if is_gpu(target) else None
    if gpu is None:
        return dict.fromkeys(CARD.names, math.nan)
    values = (gpu.capability, math.log2(gpu.bandwidth), _log2(gpu.registers), _log2(gpu.block_shared))
    return dict(zip(CARD.names, values))


def hardware_features(workload: Workload) -> NDArray[np.float32]:
    """Return the columns `table.HARDWARE_NAMES` for a workload's target.

    Parameters
    ----------
    workload : Workload
        Its ``target`` and ``hardware`` are read; empty ones get defaults.

    Returns
    -------
    float32 [len(table.HARDWARE_NAMES)]
        Finite. Sizes in bytes are ``log2(1 + size)``.
    """
    target = workload.target.lower()
    gpu = is_gpu(target)
    given = dict(enumerate(workload.hardware[:8]))
    vector, avx512, l1, l2 = _vector(target)
    avx512 = not gpu and avx512
    if gpu:
        known = gpu_of(target)
        vector, l1, l2 = 16, *((known.l1, known.l2) if known else (GPU_L1, GPU_L2))
        for place, value in enumerate(hardware_parameters(target)):
            if given.get(place, -1) <= 0:  # AutoScheduler writes -1 for a GPU's multiprocessors
                given[place] = value
    arm = (
        "aarch64" in target
        or "arm" in option_of(target, "mtriple")
        or ("neon", True) in cpu_features_of(target)
    )
    cores = option_of(target, "num-cores")
    values = (
        float(cores) if cores.isdigit() else _positive(given.get(0), 1),
        _positive(given.get(1), vector),
        _positive(given.get(2), 64),
        gpu,
        avx512,
        arm,
        math.log2(1 + l1),
        math.log2(1 + l2),
        *(_log2(given.get(place)) if gpu else 0.0 for place in (3, 4, 5, 6)),
        _positive(given.get(7), 32) if gpu else 0.0,
    )
    return np.array(values, dtype=np.float32)


def _vector(target: str) -> tuple[int, bool, int, int]:
    """Return vector bytes, AVX-512, L1 and L2 bytes of a CPU target."""
    named = f"{option_of(target, 'mcpu')} {option_of(target, 'model')}"
    vector, avx512, l1, l2 = next((row[1:] for row in CORES if re.search(row[0], named)), DEFAULT_CPU)
    for feature, on in cpu_features_of(target):
        if on and feature.startswith("avx512"):
            vector, avx512 = 64, True
        elif not on and feature == "avx512f":  # the other AVX-512 features need it
            vector, avx512 = min(vector, 32), False
    return vector, avx512, l1, l2


def _positive(value: int | None, default: float) -> float:
    return float(value) if value is not None and value > 0 else float(default)


def _log2(value: int | None) -> float:
    return math.log2(1 + value) if value is not None and value > 0 else 0.0
