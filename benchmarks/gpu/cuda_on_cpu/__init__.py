"""CUDA source that TVM generates, compiled by g++ and run on the processor, one thread after another.

It is the source that NVRTC gets. What a processor cannot tell is how long a GPU takes, and what happens
between two barriers at the same time: threads run in order, or in the reverse order, up to each barrier.
"""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wmsched.relax import attention

KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\) \{')
ASYNC = re.compile(
    r"^__forceinline__ __device__ void (ptx_cp_async\w+?)_(pred_)?c[ag]_(\d+)_(\d+)_\d+"
    r"\(([^)]*)\) \{.*?^\}\n",
    re.MULTILINE | re.DOTALL,
)
WAIT = re.compile(
    r"^__forceinline__ __device__ void (\w*wait_group\w*?)_(\d+)\(\) \{.*?^\}\n", re.MULTILINE | re.DOTALL
)
COMMIT = re.compile(
    r"^__forceinline__ __device__ void (\w*commit_group\w*)\(\) \{.*?^\}\n", re.MULTILINE | re.DOTALL
)
ASSEMBLER = re.compile(r"\basm\s*(?:volatile\s*)?\(")
MAX_SHARED = 227 * 1024
HERE = Path(__file__).parent
INSTRUCTIONS = Path(attention.__file__).parent / "instructions.cuh"  # `instructions.h` has them here


def run(source: str, mod: Any, arrays: Mapping[str, Any], folder: Path, *, reverse: bool = False) -> None:
    """Run a program's only kernel on arrays, which it writes in place.

    Parameters
    ----------
    source : str
        As `compile_kinds.source_of` returns it.
    mod : IRModule
        The scheduled program, which says how many threads there are.
    arrays : mapping of buffer name to numpy.ndarray
        float16 and bfloat16 as their bits, uint16.
    folder : Path
        Of this program alone: it is compiled there once.
    reverse : bool
        Whether the last thread of a block runs first.
    """
    kernels = list(dict.fromkeys(match.groups() for match in KERNEL.finditer(source)))
    if len(kernels) != 1:
        raise ValueError(f"one kernel is run here, and the source has {[name for name, _ in kernels]}")
    ((name, parameters),) = kernels
    library = folder / "kernel.so"
    grid, block = launch_of(mod)
    if not library.is_file():
        text = translated(source, name, parameters, grid, block)
        (folder / "kernel.cc").write_text(text)
        for header in ("cuda.h", "cuda_fp16.h", "cuda_bf16.h", "mma.h", "cuda_runtime.h"):
            (folder / header).touch()
        command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{folder}", f"-I{HERE}"]
        subprocess.run([*command, str(folder / "kernel.cc"), "-o", str(library)], check=True)
    names = [re.split(r"[\s*]+", one.strip())[-1].removesuffix("_ptr") for one in parameters.split(",")]
    pointers = [arrays[one].ctypes.data_as(ctypes.c_void_p) for one in names]
    ctypes.CDLL(str(library)).launch(*pointers, ctypes.c_int(reverse))


def translated(source: str, name: str, parameters: str, grid: Sequence[int], block: Sequence[int]) -> str:
    """Return C++ of a kernel's source, with a function `launch` that runs the whole grid."""

    def copied(match: re.Match[str]) -> str:
        _, predicated, size, element, given = match.groups()
        whole = match[0][: match[0].index("(")]
        filled = "predicate != 0" if predicated else "true"
        return (
            f"{whole}({given}) {{ copy_async((uint8_t*)dst + dst_off * {element}, "
            f"(uint8_t*)src + src_off * {element}, {size}, {filled}); }}\n"
        )

    source = ASYNC.sub(copied, source)
    source = WAIT.sub(r"inline void \1_\2() { wait_async(\2); }\n", source)
    source = COMMIT.sub(r"inline void \1() { commit_async(); }\n", source)
    source = source.replace(INSTRUCTIONS.read_text(encoding="utf-8"), "")
    if ASSEMBLER.search(source, max(0, source.find("#include <mma.h>"))):
        raise ValueError("the source has assembler that is not known here")
    source = source.replace("extern __shared__", "extern").replace("__shared__", "static")
    arguments = ", ".join(re.split(r"[\s*]+", one.strip())[-1] for one in parameters.split(","))
    x, y, _ = grid
    return (
        '#include "cuda_on_cpu.h"\n'
        f"alignas(128) unsigned char buf_dyn_shmem_ptr[{MAX_SHARED}];\n{source}\n"
        f'extern "C" void launch({parameters}, int reverse) {{\n'
        f"  for (int b = 0; b < {math.prod(grid)}; ++b) {{\n"
        f"    blockIdx = {{b % {x}, b / {x} % {y}, b / {x * y}}};\n"
        "    std::memset(buf_dyn_shmem_ptr, 0x7f, sizeof buf_dyn_shmem_ptr);  // NaN\n"
        f"    run_block([=] {{ {name}({arguments}); }}, {', '.join(map(str, block))}, reverse);\n  }}\n}}\n"
    )


def launch_of(mod: Any) -> tuple[list[int], list[int]]:
    """Return the extents of a scheduled program's grid and block."""
    from tvm import tirx

    from wmsched.codegen.tir_reader import has_node

    found: dict[str, int] = {}

    def see(node: Any) -> bool:
        if isinstance(node, tirx.For) and node.thread_binding is not None:
            tag = str(node.thread_binding.thread_tag)
            found[tag] = max(found.get(tag, 1), int(node.extent.value))
        return False

    has_node(mod["main"].body, see)
    grid, block = ([found.get(f"{kind}.{axis}", 1) for axis in "xyz"] for kind in ("blockIdx", "threadIdx"))
    return grid, block


def as_bits(values: Any, dtype: str) -> Any:
    """Return float32 values rounded to a half type, as its bits; float32 stays."""
    if dtype == "float32":
        return np.ascontiguousarray(values, np.float32)
    if dtype == "float16":
        return np.ascontiguousarray(values, np.float16).view(np.uint16)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def as_floats(bits: Any, dtype: str) -> Any:
    """Return the values of bits."""
    if dtype == "float32":
        return bits
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)
