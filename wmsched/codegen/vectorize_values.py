"""Float32 values along a loop: which go along with it, and which divisions are by the same number."""

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
LANES = 16  # of it in AVX-512; narrower processors take such a vector in parts


def plain(node: Any) -> Any:
    """What a serial loop of known length stores, where that is one float32; None of others."""
    body = node.body
    if node.kind not in (SERIAL, tir.ForKind.UNROLLED) or const_extent(node) is None:
        return None
    if not isinstance(body, tir.BufferStore) or len(body.indices) != 1 or dtype_of(body.value) != TYPE:
        return None
    return body


def reach(value: Any, variable: Any, stored: Any) -> int | None:
    """How a float32 value goes along with a loop: 1 where it reads contiguous numbers, 0 where none.

    None where that is not known: for other types and strides, conditions, and what reads the buffer that is
    stored to.
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
    """The value with a float32 that all lanes are divided by as its reciprocal; itself if there is none."""
    divides = isinstance(value, tir.Div) and dtype_of(value) == TYPE
    if divides and not uses_var(value.b, lane) and uses_var(value.a, lane):
        return tir.Mul(divisions(value.a, lane), tir.Div(tir.FloatImm(TYPE, 1.0), value.b))
    return with_operands(value, lambda operand: divisions(operand, lane))
