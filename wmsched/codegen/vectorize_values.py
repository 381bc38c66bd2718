"""Analyse float32 values along a loop: their strides, and divisions by a lane-invariant value."""

from __future__ import annotations

from typing import Any

from wmsched.codegen.nodes import (
    SERIAL,
    coefficient,
    const_extent,
    dtype_of,
    is_load,
    loaded,
    operands,
    same_storage,
    tir,
    uses_var,
    with_operands,
)

TYPE = "float32"
LANES = 16  # float32 of an AVX-512 vector; narrower CPUs split such a vector


def plain(node: Any) -> Any:
    """Return the only store of a serial loop of known extent, if it is one float32; None otherwise."""
    body = node.body
    if node.kind not in (SERIAL, tir.ForKind.UNROLLED) or const_extent(node) is None:
        return None
    if not isinstance(body, tir.BufferStore) or len(body.indices) != 1 or dtype_of(body.value) != TYPE:
        return None
    return body


def reach(value: Any, variable: Any, stored: Any) -> int | None:
    """Return a float32 value's stride along a loop: 1 if it reads contiguous elements, 0 if it is invariant.

    None if unknown: other types and strides, conditions, and reads of the buffer `stored`.
    """
    if dtype_of(value) != TYPE:
        return None
    if is_load(value):
        if stored is not None and same_storage(loaded(value), stored):
            return None
        if operands(value) is None or len(value.indices) != 1:
            return None
        step = coefficient(value.indices[0], variable)
        return step if step in (0, 1) else None
    inner = operands(value)
    if inner is None or isinstance(value, (tir.Cast, tir.Var)):
        return None
    steps = [reach(operand, variable, stored) for operand in inner]
    return None if None in steps else max(steps, default=0)  # type: ignore[type-var]


def divisions(value: Any, lane: Any) -> Any:
    """Return the value with float32 divisions by a lane-invariant value as multiplications."""
    divides = isinstance(value, tir.Div) and dtype_of(value) == TYPE
    if divides and not uses_var(value.b, lane) and uses_var(value.a, lane):
        return tir.Mul(divisions(value.a, lane), tir.Div(tir.FloatImm(TYPE, 1.0), value.b))
    return with_operands(value, lambda operand: divisions(operand, lane))
