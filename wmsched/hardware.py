"""h: what the ranker is told of the hardware (section 3.5), from the target text and the hardware tuple.

A log has both, and they may disagree: AutoScheduler writes the cores that it measured with into the tuple,
and the user writes the machine's into the target. The target wins where it says something.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from wmsched.types import Workload

HARDWARE_NAMES: tuple[str, ...] = (
    "h.cores",
    "h.vector_bytes",
    "h.cache_line",
    "h.is_gpu",
    "h.avx512",
    "h.arm",
    "h.log2_l1_bytes",
    "h.log2_l2_bytes",
    "h.log2_shared_memory",
    "h.log2_local_memory",
    "h.log2_max_threads",
    "h.log2_max_vthread",
    "h.warp_size",
)

GPU_KINDS = ("cuda", "rocm", "opencl", "metal", "vulkan", "nvptx", "webgpu")

#: (pattern of -mcpu or -model, vector bytes, AVX-512, L1 data and L2 bytes a core); the first match rules.
CORES: tuple[tuple[str, int, bool, int, int], ...] = (
    (r"sapphirerapids|emeraldrapids|graniterapids", 64, True, 48 << 10, 2 << 20),
    (r"icelake-server|tigerlake|rocketlake|icelake-client", 64, True, 48 << 10, 1280 << 10),
    (r"skylake-avx512|cascadelake|cooperlake|platinum", 64, True, 32 << 10, 1 << 20),
    (r"znver[45]", 64, True, 32 << 10, 1 << 20),
    (r"znver|epyc", 32, False, 32 << 10, 512 << 10),
    (r"core-avx2|haswell|broadwell|skylake|e5-2", 32, False, 32 << 10, 256 << 10),
    (r"alderlake|raptorlake|meteorlake", 32, False, 48 << 10, 1280 << 10),
    (r"graviton2|neoverse|cortex-a7[0-9]|apple", 16, False, 64 << 10, 1 << 20),
    (r"cortex-a", 16, False, 32 << 10, 512 << 10),
)
PLAIN = (32, False, 32 << 10, 512 << 10)  # a processor that the table does not know
GPU_L1, GPU_L2 = 128 << 10, 4 << 20  # of a multiprocessor, and of the whole device


def hardware_features(workload: Workload) -> NDArray[np.float32]:
    """The columns `HARDWARE_NAMES` of a workload's target.

    Parameters
    ----------
    workload : Workload
        Its ``target`` and ``hardware`` are read; both may be empty, and defaults then stand in.

    Returns
    -------
    float32 [len(HARDWARE_NAMES)]
        Finite. Sizes in bytes enter as ``log2(1 + size)``.
    """
    target = workload.target.lower()
    kind = re.match(r'\s*(?:\{.*?"kind"\s*:\s*")?([a-z_]+)', target)
    gpu = kind is not None and kind.group(1) in GPU_KINDS
    given = dict(enumerate(workload.hardware[:8]))
    named = f"{_option(target, 'mcpu')} {_option(target, 'model')}"
    vector, avx512, l1, l2 = next((row[1:] for row in CORES if re.search(row[0], named)), PLAIN)
    features = _option(target, "mattr")
    avx512 = not gpu and (avx512 or "avx512" in features)
    if "avx512" in features:
        vector = 64
    if gpu:
        vector, l1, l2 = 16, GPU_L1, GPU_L2
    arm = "aarch64" in target or "arm" in _option(target, "mtriple") or "neon" in features
    cores = _option(target, "num-cores")
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


def _option(target: str, name: str) -> str:
    """The value of ``-name=value`` or of the JSON form; "" where it is not there."""
    found = re.search(rf'-{name}[= ]([^\s"]+)|"{name}"\s*:\s*"?([^",}}\]]+)', target)
    return next((part for part in found.groups() if part), "").strip() if found else ""


def _positive(value: int | None, default: float) -> float:
    return float(value) if value is not None and value > 0 else float(default)


def _log2(value: int | None) -> float:
    return math.log2(1 + value) if value is not None and value > 0 else 0.0
