"""Hardware features h (paper, section 3.5), from the target text and AutoScheduler's hardware tuple.

A log has both, and they may disagree: AutoScheduler writes the cores it measured with into the tuple, and the
user writes the machine's cores into the target. The target wins where it has a value, except for the vector
width, which comes from the tuple.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import UnknownName
from wmsched.features.table import CARD
from wmsched.schedules.traces import is_trace_key
from wmsched.schedules.types import Workload

GPU_KINDS = ("cuda", "rocm", "opencl", "metal", "vulkan", "nvptx", "webgpu")

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


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, from its vendor's data sheet. The A100 is the 40 GB one, the H100 the SXM5 board.

    Attributes
    ----------
    name, arch
        Board, and compute capability as TVM writes it ("sm_89").
    sms
        Multiprocessors.
    shared, block_shared
        Bytes of shared memory of a multiprocessor, and of one thread block after opting in.
    registers
        32-bit registers of a multiprocessor.
    l1, l2
        Bytes of L1 cache and shared memory of a multiprocessor together; bytes of L2.
    bandwidth
        Memory bandwidth in GB/s.
    sm_threads, warp, max_threads
        Resident threads of a multiprocessor, threads of a warp, and of a block.
    """

    name: str
    arch: str
    sms: int
    shared: int
    block_shared: int
    registers: int
    l1: int
    l2: int
    bandwidth: float
    sm_threads: int
    warp: int = 32
    max_threads: int = 1024

    @property
    def capability(self) -> float:
        """Compute capability as a number: 8.9 for sm_89."""
        return int(re.sub(r"\D", "", self.arch)) / 10

    def named_in(self, text: str) -> bool:
        """Return whether a lower-case target tag, -model or device name is of this board."""
        own = self.name.lower().replace(" ", "[^a-z0-9]?")
        # a Ti, a laptop board and a MIG slice have other numbers, and an A1000 is no A100
        return re.search(rf"(?<![a-z0-9]){own}(?![a-z0-9])(?!{OTHER_BOARDS})", text) is not None


OTHER_BOARDS = r"[^a-z0-9]?(?:ti|super|d|laptop|ada|max-q)(?![a-z0-9])|.*(?<![a-z0-9])mig(?![a-z0-9])"

#: For each compute capability: KB of shared memory of a multiprocessor and of a block, KB of L1 and shared
#: memory together, and threads of a multiprocessor (CUDA C++ Programming Guide).
CAPABILITIES: dict[str, tuple[int, int, int, int]] = {
    "sm_75": (64, 64, 96, 1024),
    "sm_80": (164, 163, 192, 2048),
    "sm_86": (100, 99, 128, 1536),
    "sm_89": (100, 99, 128, 1536),
    "sm_90": (228, 227, 256, 2048),
    "sm_100": (228, 227, 256, 2048),
    "sm_120": (100, 99, 128, 1536),
}

#: Board, compute capability, multiprocessors, MB of L2, and GB/s, from data sheets. The first board of a
#: capability is the default for unlisted boards.
BOARDS: tuple[tuple[str, str, int, int, float], ...] = (
    ("RTX 4090", "sm_89", 128, 72, 1008.0),
    ("RTX 4090 D", "sm_89", 114, 72, 1008.0),
    ("RTX 4080 SUPER", "sm_89", 80, 64, 736.0),
    ("RTX 4080", "sm_89", 76, 64, 717.0),
    ("RTX 4070 Ti SUPER", "sm_89", 66, 48, 672.0),
    ("RTX 4070 Ti", "sm_89", 60, 48, 504.0),
    ("RTX 4070 SUPER", "sm_89", 56, 48, 504.0),
    ("RTX 4070", "sm_89", 46, 36, 504.0),
    ("RTX 4060 Ti", "sm_89", 34, 32, 288.0),
    ("RTX 4060", "sm_89", 24, 24, 272.0),
    ("RTX 6000 Ada", "sm_89", 142, 96, 960.0),
    ("L40S", "sm_89", 142, 96, 864.0),
    ("L4", "sm_89", 58, 48, 300.0),
    ("H100", "sm_90", 132, 50, 3350.0),
    ("H200", "sm_90", 132, 50, 4800.0),
    ("A100", "sm_80", 108, 40, 1555.0),
    ("A30", "sm_80", 56, 24, 933.0),
    ("RTX 3090", "sm_86", 82, 6, 936.0),
    ("RTX 3090 Ti", "sm_86", 84, 6, 1008.0),
    ("RTX 3080 Ti", "sm_86", 80, 6, 912.0),
    ("RTX 3080", "sm_86", 68, 5, 760.0),
    ("RTX 3070 Ti", "sm_86", 48, 4, 608.0),
    ("RTX 3070", "sm_86", 46, 4, 448.0),
    ("RTX 3060 Ti", "sm_86", 38, 4, 448.0),
    ("RTX 3060", "sm_86", 28, 3, 360.0),
    ("RTX A6000", "sm_86", 84, 6, 768.0),
    ("A40", "sm_86", 84, 6, 696.0),
    ("A10", "sm_86", 72, 6, 600.0),
    ("RTX 5090", "sm_120", 170, 96, 1792.0),
    ("RTX 5080", "sm_120", 84, 64, 960.0),
    ("RTX 5070 Ti", "sm_120", 70, 48, 896.0),
    ("RTX 5070", "sm_120", 48, 48, 672.0),
    ("B200", "sm_100", 148, 126, 8000.0),
    ("T4", "sm_75", 40, 4, 320.0),
)


def _gpu(name: str, arch: str, sms: int, l2: int, bandwidth: float) -> Gpu:
    shared, block, l1, threads = CAPABILITIES[arch]
    return Gpu(name, arch, sms, shared << 10, block << 10, 65536, l1 << 10, l2 << 20, bandwidth, threads)


GPUS: tuple[Gpu, ...] = tuple(_gpu(*board) for board in BOARDS)


def gpu_of(target: str) -> Gpu | None:
    """Return the GPU named by a target or device name, else the first of its architecture; None if unknown.

    Parameters
    ----------
    target : str
        A TVM target, as text or JSON, or a name such as "NVIDIA GeForce RTX 4090".
    """
    text = target.lower()
    named = next((gpu for gpu in GPUS if gpu.named_in(text)), None)
    if named is not None:
        return named
    arch = re.match(r"sm_\d+", _option(text, "arch"))
    return next((gpu for gpu in GPUS if arch is not None and gpu.arch == arch.group()), None)


def cuda_target(name: str, capability: str = "") -> dict[str, str | int]:
    """Return the CUDA target of a device as a dict for ``tvm.target.Target``.

    Parameters
    ----------
    name : str
        The driver's name, "NVIDIA GeForce RTX 4090". The target keeps it, to tell boards of one architecture
        apart.
    capability : str
        Compute capability, "8.9"; may be "" for a GPU of `GPUS`.

    Raises
    ------
    UnknownName
        `capability` is empty and the name is not in `GPUS`.

    Examples
    --------
    >>> cuda_target("NVIDIA GeForce RTX 4090")["arch"]
    'sm_89'
    """
    gpu = next((gpu for gpu in GPUS if gpu.named_in(name.lower())), None)
    if gpu is None and not re.fullmatch(r"\d+\.\d", capability):
        raise UnknownName(
            f"no GPU called {name!r} is known: give its compute capability, for example 8.9, or one of "
            f"{', '.join(gpu.name for gpu in GPUS)}"
        )
    arch = f"sm_{capability.replace('.', '')}" if capability else gpu.arch  # type: ignore[union-attr]
    return {
        "kind": "cuda",
        "arch": arch,
        "model": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
        "max_threads_per_block": gpu.max_threads if gpu is not None else 1024,
        "max_shared_memory_per_block": 48 << 10,  # without opting in to more, as TVM's kernels
        "thread_warp_size": gpu.warp if gpu is not None else 32,
    }


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
        cores = _option(text, "num-cores")
        return (int(cores) if cores.isdigit() else 1, int(_vector(text)[0]), 64, 0, 0, 0, 0, 0)

    def number(*names: str, default: int) -> int:
        found = next((_option(text, name) for name in names if _option(text, name).isdigit()), "")
        return int(found) if found else default

    gpu = gpu_of(text)
    return (
        gpu.sms if gpu is not None else DEFAULT_SMS if _kind(text) in DATACENTRE_KINDS else -1,
        16,
        64,
        number("max_shared_memory_per_block", default=48 << 10),
        (1 << 31) - 1,
        number("max_threads_per_block", "max_num_threads", default=gpu.max_threads if gpu else 1024),
        8,
        number("thread_warp_size", default=gpu.warp if gpu else 32),
    )


def is_gpu(target: str) -> bool:
    """Return whether a target, as text or JSON, is a GPU."""
    return _kind(target.lower()) in GPU_KINDS


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
    arm = "aarch64" in target or "arm" in _option(target, "mtriple") or ("neon", True) in _mattr(target)
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


def _kind(target: str) -> str:
    found = re.match(r'\s*(?:\{.*?"kind"\s*:\s*")?([a-z_]+)', target)
    return found.group(1) if found else ""


def _vector(target: str) -> tuple[int, bool, int, int]:
    """Return vector bytes, AVX-512, L1 and L2 bytes of a CPU target."""
    named = f"{_option(target, 'mcpu')} {_option(target, 'model')}"
    vector, avx512, l1, l2 = next((row[1:] for row in CORES if re.search(row[0], named)), DEFAULT_CPU)
    for feature, on in _mattr(target):
        if on and feature.startswith("avx512"):
            vector, avx512 = 64, True
        elif not on and feature == "avx512f":  # the other AVX-512 features need it
            vector, avx512 = min(vector, 32), False
    return vector, avx512, l1, l2


def _mattr(target: str) -> list[tuple[str, bool]]:
    """Return the features in ``-mattr`` in order, and whether each is turned on; the last one wins.

    In JSON ``mattr`` is a list, or a text as after ``-mattr=``.
    """
    found = re.search(r'-mattr[= ]"?([^\s"]+)|"mattr"\s*:\s*(?:\[([^\]]*)\]|"([^"]*)")', target)
    text = next((part for part in found.groups() if part), "") if found else ""
    return [(name.lstrip("+-"), name[0] != "-") for name in re.split(r'[\s,"]+', text) if name]


def _option(target: str, name: str) -> str:
    """Return the value of ``-name=value`` or of the JSON form; "" if missing."""
    found = re.search(rf'-{name}[= ]([^\s"]+)|"{name}"\s*:\s*"?([^",}}\]]+)', target)
    return next((part for part in found.groups() if part), "").strip() if found else ""


def _positive(value: int | None, default: float) -> float:
    return float(value) if value is not None and value > 0 else float(default)


def _log2(value: int | None) -> float:
    return math.log2(1 + value) if value is not None and value > 0 else 0.0
