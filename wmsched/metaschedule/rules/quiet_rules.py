"""Schedule rules that TVM's operators name and that no processor has, so that no run warns of them.

Works around apache-tvm 0.27: topi marks pooling with rules that exist for Hexagon alone, and each search of a
pooling layer printed a warning that its reader can do nothing about. The rules here do what TVM does after
the warning: they take the mark off, and the block is scheduled like any other. Remove when TVM looks for a
rule in silence.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm

__all__ = ["register_quiet_rules"]

NAMES = ("pool_max", "pool_avg", "adaptive_pool_max", "adaptive_pool_avg")
KINDS = ("cpu", "cuda", "gpu", "llvm")  # keys of a target that TVM looks for a rule under


def _unmarked(schedule: Any, block: Any) -> list[Any]:
    schedule.unannotate(block, "schedule_rule")  # a block that keeps its mark is left to no rule at all
    return [schedule]


@functools.cache
def register_quiet_rules() -> None:
    """Register the rules, once for each process, where nobody else has."""
    for kind in KINDS:
        for name in NAMES:
            full = f"s_tir.meta_schedule.{kind}.meta_schedule.{name}"
            if tvm.get_global_func(full, allow_missing=True) is None:
                tvm.register_global_func(full, _unmarked)
