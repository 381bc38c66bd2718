"""What is computed for a few numbers, by which a large tensor is multiplied, stays apart from that.

A squeeze-and-excitation is a product of a few channels, a sigmoid, and a multiplication of the whole image by
it. TVM fuses these into one function, whose schedules compute the product anew in each tile of the image, and
the sigmoid for each of its elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx

from wmsched.relax.passes.wide_fusion import shape_of

PATTERN = "op_pattern"  # TVM's attribute of a function, which its fusion goes by
ELEMENTWISE, BROADCAST, INJECTIVE, PRODUCT, OPAQUE = 0, 1, 2, 4, 8  # TVM's numbers of patterns
LARGER = 8  # times as many elements
CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def gates_apart(module: Any) -> Any:
    """A module of legalized operators, their patterns known, in which no gate is fused with what it is for.

    A gate is computed of a product's or a convolution's result, element by element, and read by an
    elementwise operator whose result is `LARGER` times as large. The last operator of it is marked as one
    that TVM fuses with nothing; what is before it is fused as it was.
    """
    last: set[Any] = set()
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            last |= _last_operators(function, module)
    found = module.clone()
    for name in last:
        found.update_func(name, module[name].with_attr(PATTERN, OPAQUE))
    return found


def _last_operators(function: Any, module: Any) -> set[Any]:
    """The functions in TensorIR that compute gates."""
    blocks = function.body.blocks if isinstance(function.body, relax.SeqExpr) else []
    bound = [binding for block in blocks for binding in block.bindings]
    calls = {each.var: each.value for each in bound if isinstance(each, relax.VarBinding)}
    found = set()
    for call in calls.values():
        if _pattern(call, module) not in (ELEMENTWISE, BROADCAST):
            continue
        for operand in call.args[1]:
            gate = calls.get(operand)
            small = LARGER * _size(operand) <= _size(call)
            if small and gate is not None and _of_product(gate, calls, module):
                found.add(gate.args[0])
    return found


def _of_product(call: Any, calls: Mapping[Any, Any], module: Any) -> bool:
    """Whether it is a product, or computed of one element by element."""
    while (pattern := _pattern(call, module)) in (ELEMENTWISE, BROADCAST, INJECTIVE):
        before = [calls[operand] for operand in call.args[1] if operand in calls]
        if len(before) != 1:
            return False
        (call,) = before
    return pattern == PRODUCT


def _pattern(call: Any, module: Any) -> int:
    """TVM's number for a call of a function in TensorIR; -1 of anything else."""
    if not isinstance(call, relax.Call) or call.op != CALL_TIR:
        return -1
    function = module[call.args[0]]
    known = isinstance(function, tirx.PrimFunc) and function.attrs is not None and PATTERN in function.attrs
    return int(function.attrs[PATTERN]) if known else -1


def _size(value: Any) -> float:
    """How many elements a tensor has; not a number where that is not known."""
    shape = shape_of(value)
    return math.nan if shape is None else math.prod(shape)
