"""Separation of gates, such as squeeze-and-excitation, from the large tensors that they multiply.

Squeeze-and-excitation is a product of few channels, a sigmoid, and a multiplication of the whole image. TVM
fuses these into one function, which recomputes the product in each tile of the image and the sigmoid for
each element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx

from wmsched.relax.passes.wide_fusion import shape_of

PATTERN_ATTRIBUTE = "op_pattern"  # the function attribute that TVM's fusion reads
ELEMENTWISE, BROADCAST, INJECTIVE, PRODUCT, OPAQUE = 0, 1, 2, 4, 8  # TVM's numbers of patterns
MIN_SIZE_RATIO = 8  # elements of the large tensor for each of the gate
CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def gates_apart(module: Any) -> Any:
    """Return a legalized module with patterns in which TVM fuses no gate with the tensor it multiplies.

    A gate is elementwise in the result of a product or convolution. An elementwise operator reads it whose
    result is `MIN_SIZE_RATIO` times as large. The pass marks the gate's last operator as opaque, so that TVM
    does not fuse it.
    """
    last: set[Any] = set()
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            last |= _last_operators(function, module)
    found = module.clone()
    for name in last:
        found.update_func(name, module[name].with_attr(PATTERN_ATTRIBUTE, OPAQUE))
    return found


def _last_operators(function: Any, module: Any) -> set[Any]:
    """Return the TensorIR functions that compute gates."""
    blocks = function.body.blocks if isinstance(function.body, relax.SeqExpr) else []
    bound = [binding for block in blocks for binding in block.bindings]
    calls = {each.var: each.value for each in bound if isinstance(each, relax.VarBinding)}
    found = set()
    for call in calls.values():
        if pattern_of(call, module) not in (ELEMENTWISE, BROADCAST):
            continue
        for operand in call.args[1]:
            gate = calls.get(operand)
            small = MIN_SIZE_RATIO * _size(operand) <= _size(call)
            if small and gate is not None and _of_product(gate, calls, module):
                found.add(gate.args[0])
    return found


def _of_product(call: Any, calls: Mapping[Any, Any], module: Any) -> bool:
    """Whether a call is a product, or elementwise in one."""
    while (pattern := pattern_of(call, module)) in (ELEMENTWISE, BROADCAST, INJECTIVE):
        before = [calls[operand] for operand in call.args[1] if operand in calls]
        if len(before) != 1:
            return False
        (call,) = before
    return pattern == PRODUCT


def pattern_of(call: Any, module: Any) -> int:
    """Return TVM's pattern of a call of a TensorIR function; -1 for anything else."""
    if not isinstance(call, relax.Call) or call.op != CALL_TIR:
        return -1
    function = module[call.args[0]]
    known = (
        isinstance(function, tirx.PrimFunc)
        and function.attrs is not None
        and PATTERN_ATTRIBUTE in function.attrs
    )
    return int(function.attrs[PATTERN_ATTRIBUTE]) if known else -1


def _size(value: Any) -> float:
    """Return a tensor's number of elements; NaN if unknown."""
    shape = shape_of(value)
    return math.nan if shape is None else math.prod(shape)
