"""MetaSchedule's stock design spaces for processors and GPUs that are not at hand."""

from __future__ import annotations

import programs as P
import pytest
from tvm.target import Target

from wmsched.metaschedule.measure.builder import build

CPUS = [  # id, program, target, intrinsic that the space must use
    ("avx512 matmul", P.matmul, P.CPU, ""),
    ("avx512 conv", P.conv, P.CPU, ""),
    ("avx512 softmax", P.softmax, P.CPU, ""),
    ("avx512 winograd", P.winograd, P.CPU, ""),
    ("avx512 relayout", P.dense, P.CPU, ""),
    ("avx512 constant", P.constant, P.CPU, ""),
    ("avx512 bytes", P.vnni, P.SKYLAKE, "dot_16x4_avx512"),
    ("vnni bytes", P.vnni, P.VNNI, "dot_16x4_vnni"),
    ("plain matmul", P.matmul, P.PLAIN, ""),
    ("plain bytes", P.vnni, P.PLAIN, ""),
    ("neon matmul", P.matmul, P.NEON, ""),
    ("neon bytes", P.sdot, P.NEON, "dot_4x4_i8i8s32_neon"),
    ("arm dot product", P.sdot, P.SDOT, "dot_4x4_i8i8s32_sdot"),
    ("hexagon matmul", P.matmul, P.HEXAGON, ""),
    ("risc-v matmul", P.matmul, P.RISCV, ""),
]


def half():
    return P.matmul(64, dtype="float16", out="float16")


def mixed():
    return P.matmul(64, dtype="float16", out="float32")


def byte():
    return P.matmul(64, dtype="int8", out="int32")


CUDA = [  # id, program, target, space, intrinsic, compiles to source
    *[
        (f"{name} {func.__name__}", func, target, "cuda", "", True)
        for name, target in P.GPUS.items()
        for func in (P.matmul, P.conv, P.softmax)
    ],
    ("A100 winograd", P.winograd, P.GPU, "cuda", "", True),
    ("A100 constant", P.constant, P.GPU, "cuda", "", True),
    ("RTX 4090 relayout", P.dense, P.GPUS["RTX 4090"], "cuda", "", True),
    *[
        (f"{name} tensor core {func.__name__}", func, target, "cuda-tensorcore", wanted, True)
        for name, target in P.GPUS.items()
        for func, wanted in (
            (half, "wmma_sync_16x16x16_f16f16f16"),
            (mixed, "wmma_sync_16x16x16_f16f16f32"),
            (byte, "wmma_sync_16x16x16_s8s8s32"),
        )
    ],
]


def rows(table):
    """The table for pytest; tensor cores of all GPUs but one take long, and are alike."""
    slow = [
        row[0] == "A100 winograd" or (" tensor core " in row[0] and not row[0].startswith("A100"))
        for row in table
    ]
    return [
        pytest.param(*row[1:], id=row[0], marks=[pytest.mark.slow] if late else [])
        for row, late in zip(table, slow)
    ]


def cuda_source(mod, target) -> str:
    """The CUDA source of a scheduled program; what a compiler for the GPU would be given."""
    built = build(mod, Target(Target(target), host={"kind": "llvm", "num-cores": 1}))
    (device,) = (built.mod if hasattr(built, "mod") else built).imports
    assert str(device.kind) == "cuda"
    return str(device.inspect_source())
