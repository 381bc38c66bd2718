"""GPUs by their data sheets: which board a target or a driver's name means, and the target of a board."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wmsched.base.errors import UnknownName
from wmsched.features.target_options import option_of


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

#: Compute capability from which tensor cores multiply a type; float32 as TF32.
TENSOR_CORES: dict[str, float] = {"float16": 7.0, "bfloat16": 8.0, "float32": 8.0}

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
    arch = re.match(r"sm_\d+", option_of(text, "arch"))
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
