"""What MetaSchedule's postprocessors for a CPU ask of a program that its `Workload` does not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm.sym
from tvm import tirx
from tvm.s_tir.meta_schedule import postproc

from wmsched.base.errors import LogError
from wmsched.codegen.tir_reader import blocks_of

#: The postprocessors that `native/processors.h` follows, in their order.
FOLLOWED = [
    postproc.RewriteParallelVectorizeUnroll,
    postproc.RewriteReductionBlock,
    postproc.RewriteLayout,
]
#: Those that leave a schedule as it is: one refuses, one is for intrinsics, whose schedules are not read.
IDLE = (postproc.DisallowDynamicLoop, postproc.RewriteTensorize)


@dataclass(frozen=True)
class CpuProgram:
    """Of one workload.

    Parameters
    ----------
    rewritten : tuple of int
        Arguments that are to be laid out as they are read, by their stages' numbers.
    offsets : tuple
        For each stage, of each of its reads, for each dimension of what it reads: what is added to the sum
        over the iterators, so -1 of ``x[i - 1]``.
    """

    rewritten: tuple[int, ...]
    offsets: tuple[tuple[tuple[int, ...], ...], ...]


def cpu_program(mod: Any, rules: Sequence[Any]) -> CpuProgram:
    """What a task's postprocessors ask.

    Parameters
    ----------
    mod : tvm.IRModule
        Of the task, with one function, ``main``.
    rules : sequence of Postproc
        Of its space generator.

    Raises
    ------
    LogError
        There are other postprocessors than those that are followed, or in another order.
    """
    if [type(rule) for rule in rules if not isinstance(rule, IDLE)] != FOLLOWED:
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
    """What is left where all variables are 0; 0 of what is not linear."""
    found = tvm.sym.detect_linear_equation(index, variables)
    return int(found[-1]) if len(found) and isinstance(found[-1], tirx.IntImm) else 0
