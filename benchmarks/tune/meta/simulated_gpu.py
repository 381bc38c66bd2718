"""A made-up GPU: seconds of a scheduled program by a roofline, so that CUDA's search runs without the device.

The shape of the answer is right and its numbers mean nothing: grids that fill the multiprocessors, full
warps, neighbouring threads that read neighbouring words, and data kept in shared memory and registers are
faster. It tests the search; it measures no schedule. What it tells is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

import tvm

from wmsched.base.errors import UnknownName
from wmsched.features.gpus import Gpu, gpu_of

CLOCK = 1.5e9  # of every made-up GPU
LANES = 64  # multiplications and additions a cycle and multiprocessor
LAUNCH = 3e-6  # seconds
SECTOR = 32  # bytes that memory gives at least
BUSY = 16  # independent instructions for each scheduler, with which latencies are hidden
TENSOR_CORE = 16 * 16 * 16, 8  # multiplications of one intrinsic, and how much faster they are
REGISTERS = 40  # of a thread, besides its own arrays


class Refused(Exception):
    """The GPU cannot run the program."""


@dataclass
class _Kernel:
    """What one launch does; work and bytes are of all its threads together."""

    threads: dict[str, int] = field(default_factory=dict)
    flops: float = 0.0
    global_bytes: float = 0.0
    distinct: dict[str, float] = field(default_factory=dict)  # bytes of each array in global memory
    shared_bytes: float = 0.0
    inside: float = 1.0  # largest product of loops below the threads: what one thread may overlap


class RooflineGpu:
    """Seconds of programs on the GPU that a target names.

    Parameters
    ----------
    target : tvm.target.Target
        Of a GPU that `wmsched.features.gpus` knows.

    Raises
    ------
    UnknownName
        It does not.
    """

    def __init__(self, target: Any) -> None:
        gpu = gpu_of(str(target))
        if gpu is None:
            raise UnknownName(
                f"{target} names no GPU that wmsched.features.gpus knows: give one with an arch"
            )
        self.gpu: Gpu = gpu

    def seconds(self, mod: Any) -> float:
        """Seconds of a scheduled module; Refused where its kernels take more than the GPU has."""
        walk = _Walk()
        walk.statement(mod["main"].body, {}, 1.0, 1.0, None)
        if not walk.kernels:
            raise Refused("nothing in it is bound to threads")
        return sum(self._kernel(kernel, walk) for kernel in walk.kernels)

    def _kernel(self, kernel: _Kernel, walk: _Walk) -> float:
        gpu = self.gpu
        threads = prod(n for tag, n in kernel.threads.items() if tag.startswith("threadIdx"))
        blocks = prod(n for tag, n in kernel.threads.items() if tag.startswith("blockIdx"))
        if threads > gpu.max_threads or walk.shared > gpu.block_shared:
            raise Refused(f"{threads} threads and {walk.shared:.0f} bytes of shared memory in a block")
        warps = ceil(threads / gpu.warp)
        registers = (REGISTERS + walk.local / 4) * warps * gpu.warp
        resident = max(
            1,
            min(
                gpu.sm_threads // (warps * gpu.warp),
                int(gpu.shared // max(1.0, walk.shared)),
                int(gpu.registers // registers),
                16,
            ),
        )
        overlap = min(8.0, kernel.inside)
        busy = min(1.0, resident * warps * overlap / (4 * BUSY))
        full = threads / (warps * gpu.warp)
        waves = blocks / (gpu.sms * resident)
        tail = ceil(waves) / waves if waves > 1 else 1 / min(1.0, blocks / gpu.sms)
        compute = kernel.flops / (gpu.sms * LANES * 2 * CLOCK) / full
        shared = kernel.shared_bytes / (gpu.sms * 128 * CLOCK)
        cold = sum(kernel.distinct.values())
        memory = max(cold, kernel.global_bytes / 4) / (gpu.bandwidth * 1e9)  # the rest comes from a cache
        return LAUNCH + max(compute, shared, memory) * tail / busy


class _Walk:
    """Goes through a program once and adds up its kernels."""

    def __init__(self) -> None:
        self.kernels: list[_Kernel] = []
        self.shared = self.local = 0.0

    def statement(self, node: Any, env: dict[str, Any], count: float, inside: float, kernel: Any) -> None:
        """`count` iterations of `node`, `inside` of them by one thread; `env` has the variables' values."""
        kind = type(node).__name__
        if kind == "For":
            extent = _number(node.extent)
            if node.thread_binding is not None:
                tag = str(node.thread_binding.thread_tag)
                if kernel is None:
                    kernel = _Kernel()
                    self.kernels.append(kernel)
                virtual = tag.startswith("vthread")
                if not virtual:
                    kernel.threads[tag] = extent
                inner = inside * extent if virtual else inside
            else:
                tag, inner = "", inside * extent
            self.statement(node.body, {**env, _name(node.loop_var): tag}, count * extent, inner, kernel)
        elif kind == "SBlockRealize":
            bound = dict(env)
            for var, value in zip(node.block.iter_vars, node.iter_values):
                bound[_name(var.var)] = (value, env)
            self.statement(node.block, bound, count, inside, kernel)
        elif kind == "SBlock":
            for buffer in node.alloc_buffers:
                size = prod(_number(n) for n in buffer.shape) * _bytes(buffer)
                scope = str(buffer.scope())
                self.shared += size if scope.startswith("shared") else 0
                self.local += size if scope == "local" else 0
            self.statement(node.body, env, count, inside, kernel)
        elif kind == "BufferStore":
            if kernel is not None:
                kernel.inside = max(kernel.inside, inside)
                self._access(node, env, count, kernel)
                self._expression(node.value, env, count, kernel)
        elif kind == "Evaluate":
            if kernel is not None and "mma_sync" in str(node.value):
                multiplications, faster = TENSOR_CORE
                kernel.flops += 2 * multiplications * count / faster / 32  # a warp does it together
        elif kind == "SeqStmt":
            for part in node.seq:
                self.statement(part, env, count, inside, kernel)
        else:
            for name in ("body", "then_case", "else_case"):
                part = getattr(node, name, None)
                if part is not None:
                    self.statement(part, env, count, inside, kernel)

    def _expression(self, node: Any, env: dict[str, Any], count: float, kernel: _Kernel) -> None:
        kind = type(node).__name__
        if kind in ("BufferLoad", "TensorLoad"):
            self._access(node, env, count, kernel)
            return
        if kind in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Call"):
            kernel.flops += count
        for part in _operands(node):
            self._expression(part, env, count, kernel)

    def _access(self, node: Any, env: dict[str, Any], count: float, kernel: _Kernel) -> None:
        buffer = node.source if hasattr(node, "source") else node.buffer
        scope, size = str(buffer.scope()), _bytes(buffer)
        if scope.startswith("shared"):
            kernel.shared_bytes += count * size
        elif scope in ("", "global"):
            stride = _stride(node.indices, buffer.shape, env)
            moved = size / 32 if stride == 0 else min(SECTOR, size * stride)
            kernel.global_bytes += count * moved
            kernel.distinct[_name(buffer)] = prod(_number(n) for n in buffer.shape) * size


def _stride(indices: Any, shape: Any, env: dict[str, Any]) -> int:
    """Elements between what a thread and its neighbour touch."""

    def place(x: int) -> int:
        at = 0
        for index, extent in zip(indices, shape):
            at = at * _number(extent) + _value(index, env, x)
        return at

    return abs(place(1) - place(0))


def _value(node: Any, env: dict[str, Any], x: int) -> int:
    """An index where threadIdx.x is `x` and every other loop is at its start."""
    kind = type(node).__name__
    if kind in ("IntImm", "int"):
        return _number(node)
    if kind in ("Var", "SizeVar"):
        told = env.get(_name(node), "")
        if isinstance(told, tuple):
            return _value(told[0], told[1], x)
        return x if told == "threadIdx.x" else 0
    parts = [_value(part, env, x) for part in _operands(node)]
    if len(parts) == 2 and kind in _ARITHMETIC:
        return _ARITHMETIC[kind](*parts)
    return parts[0] if parts else 0


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b if b else 0,
    "FloorMod": lambda a, b: a % b if b else 0,
    "Max": lambda a, b: max(a, b),
    "Min": lambda a, b: min(a, b),
}


def _operands(node: Any) -> Iterator[Any]:
    for name in ("a", "b", "value", "condition", "true_value", "false_value"):
        part = getattr(node, name, None)
        if part is not None and not isinstance(part, (int, float, str)):
            yield part
    if type(node).__name__ == "Call":
        yield from node.args


def _name(node: Any) -> str:
    """Identity of a variable or buffer: names alone are not unique."""
    return f"{node.name}@{hash(node)}"


def _number(node: Any) -> int:
    return int(node.value) if hasattr(node, "value") else int(node)


def _bytes(buffer: Any) -> int:
    return max(1, tvm.DataType(str(buffer.dtype)).bits // 8)
