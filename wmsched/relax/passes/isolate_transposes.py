"""Separation of transpositions from the concatenations that read them.

TVM fuses both into one function. Each element of the result then tests which tensor it is from, and reads it
from a row of its own. Apart, a transposition is one pass, and the concatenation copies whole rows.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import Schedule

from wmsched.relax.passes.isolate_gates import INJECTIVE, OPAQUE, PATTERN_ATTRIBUTE, pattern_of

MIN_READERS = 2  # tensors of a concatenation


def transposes_apart(module: Any) -> Any:
    """Return a legalized module in which no function that moves the innermost dimension is fused.

    That is, none that a concatenation reads, directly or through other injective functions of one input.
    """
    marked: set[Any] = set()
    for function in module.functions.values():
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
            bound = [each for block in function.body.blocks for each in block.bindings]
            calls = {each.var: each.value for each in bound if isinstance(each, relax.VarBinding)}
            for call in calls.values():
                if pattern_of(call, module) == INJECTIVE and len(call.args[1]) >= MIN_READERS:
                    marked |= _transposes(call, calls, module)
    found = module.clone()
    for name in marked:
        found.update_func(name, module[name].with_attr(PATTERN_ATTRIBUTE, OPAQUE))
    return found


def _transposes(call: Any, calls: Any, module: Any) -> set[Any]:
    """Return the functions before a call that move the innermost dimension."""
    found = set()
    for operand in call.args[1]:
        before = calls.get(operand)
        while before is not None and pattern_of(before, module) == INJECTIVE and len(before.args[1]) == 1:
            if moves_innermost(module[before.args[0]]):
                found.add(before.args[0])
                break
            before = calls.get(before.args[1][0])
    return found


def moves_innermost(function: Any) -> bool:
    """Return whether a function of one block has another innermost dimension than its only input."""
    schedule = Schedule(tvm.IRModule({"main": function}))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root", "main"))
    if len(blocks) != 1:
        return False
    block = schedule.get(blocks[0])
    if len(block.reads) != 1 or len(block.writes) != 1:
        return False
    read, written = (list(each[0].region) for each in (block.reads, block.writes))
    if not read or not written:
        return False
    last, own = read[-1].min, written[-1].min
    variables = [each.var for each in block.iter_vars]
    return any(last.same_as(one) for one in variables) and not last.same_as(own)
