"""Space generators: MetaSchedule's rules for a target, and those of this room among them."""

from __future__ import annotations

from typing import Any

from tvm.s_tir import meta_schedule as ms

from wmsched.codegen.tf32 import KEY
from wmsched.features.gpus import gpu_of
from wmsched.metaschedule.rules.column_reduction import ColumnReduction
from wmsched.metaschedule.rules.split_reduction import SplitReduction
from wmsched.metaschedule.rules.tensor_cores import FitsRegisters, TensorCores
from wmsched.toolchain.resolve import is_cpu
from wmsched.toolchain.targets import target_text

__all__ = ["space_generator"]


def space_generator(target: Any) -> Any:
    """Return MetaSchedule's space generator for a target, with the rules of this room for it.

    A processor has `ColumnReduction`; CUDA has `SplitReduction`, and `TensorCores` where the GPU is known and
    has some: for half floats, and for float32 in TF32 where the target's keys have "tf32". Other targets have
    MetaSchedule's own.
    """
    kind = "llvm" if is_cpu(target) else str(target.kind.name)
    if kind not in ("llvm", "cuda"):
        return "post-order-apply"
    rules = []
    postprocs = list(ms.Postproc.create(kind))
    gpu = gpu_of(target_text(target)) if kind == "cuda" else None
    for rule in ms.ScheduleRule.create(kind):
        if gpu is not None and isinstance(rule, ms.schedule_rule.MultiLevelTiling):
            rules.append(TensorCores(gpu.capability, tf32=KEY in set(map(str, target.keys))))
        if kind == "llvm" and isinstance(rule, ms.schedule_rule.AddRFactor):
            rules.append(ColumnReduction())
        # AutoInline visits an output with two operands, such as GELU's product, before it inlines these.
        # The second visit inlines the output into the sum's kernel.
        twice = kind == "cuda" and isinstance(rule, ms.schedule_rule.AutoInline)
        rules += [rule] * (2 if twice else 1)
    if kind == "cuda":
        rules.insert(1, SplitReduction())  # after the rules that a function names itself
        postprocs = [FitsRegisters(), *postprocs, ms.postproc.RewriteTensorize()]
    return ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=postprocs,
        mutator_probs=ms.Mutator.create(kind),
    )
