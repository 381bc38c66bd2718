"""Facts about a program that MetaSchedule's CPU postprocessors use and its `Workload` lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm.sym
from tvm import tirx
from tvm.s_tir.meta_schedule import postproc

from wmsched.base.errors import LogError
from wmsched.codegen.tir_reader import blocks_of

#: Postprocessors that `processors.h` simulates, in this order.
SIMULATED = [
    postproc.RewriteParallelVectorizeUnroll,
    postproc.RewriteReductionBlock,
    postproc.RewriteLayout,
]
#: Postprocessors that never change these schedules: one only refuses, one is for tensor intrinsics.
UNCHANGING = (postproc.DisallowDynamicLoop, postproc.RewriteTensorize)


@dataclass(frozen=True)
class CpuProgram:
    """Facts about one workload for the CPU postprocessors.

    Parameters
    ----------
    rewritten : tuple of int
        Stage numbers of the arguments whose layout may be rewritten.
    offsets : tuple
        Constant term of each index, by stage, read and dimension: -1 for ``x[i - 1]``.
    """

    rewritten: tuple[int, ...]
    offsets: tuple[tuple[tuple[int, ...], ...], ...]


def cpu_program(mod: Any, rules: Sequence[Any]) -> CpuProgram:
    """Return the facts that a task's CPU postprocessors use.

    Parameters
    ----------
    mod : tvm.IRModule
        The task's module, with one function, ``main``.
    rules : sequence of Postproc
        Postprocessors of its space generator.

    Raises
    ------
    LogError
        The postprocessors are not `SIMULATED`, or an argument's free layout is not supported.
    """
    if [type(rule) for rule in rules if not isinstance(rule, UNCHANGING)] != SIMULATED:
        raise LogError("other postprocessors than MetaSchedule's for a CPU")
    func = mod["main"]
    arguments, blocks = blocks_of(func)
    free = [func.params[int(k)] for k in (func.attrs or {}).get("layout_free_buffers", ())]
    rewritten = tuple(n for one in free for n, each in enumerate(arguments) if each.same_as(one))
    if len(rewritten) != len(free):
        raise LogError("an argument whose layout is free is written")
    if any("layout_free_placeholders" in (block.annotations or {}) for block in blocks):
        raise LogError("arguments whose layout is free in no known order")
    offsets = [() for _ in arguments] + [_offsets(block) for block in blocks]
    return CpuProgram(rewritten, tuple(offsets))


def _offsets(block: Any) -> tuple[tuple[int, ...], ...]:
    variables = [v.var for v in block.iter_vars]
    own = [region.source for region in block.writes]
    return tuple(
        tuple(_offset(dim.min, variables) for dim in region.region)
        for region in block.reads
        if not any(region.source.same_as(buffer) for buffer in own)
    )


def _offset(index: Any, variables: list[Any]) -> int:
    """Return the constant term of an index; 0 if it is not linear."""
    found = tvm.sym.detect_linear_equation(index, variables)
    return int(found[-1]) if len(found) and isinstance(found[-1], tirx.IntImm) else 0
