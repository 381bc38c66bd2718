"""Rows of a convolution's product copied side by side, with the zero point in place of the padding.

On the way they become what the dot product takes: float32 is rounded to bfloat16 if that takes it.
"""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.dots import ROUND
from wmsched.relax.int8.finish import kind, pieces, span
from wmsched.relax.int8.geometry import Geometry

MAX_VECTOR = 64  # elements, and bytes of data
ROUNDED_LANES = 16  # float32 that are rounded at once


def copied(target: Any, to: Any, source: Any, start: Any, extent: int, dtype: str) -> None:
    """Emit a copy of `extent` elements, widened or rounded to `dtype`."""
    given = str(source.dtype)
    most = ROUNDED_LANES if given == "float32" else MAX_VECTOR * 8 // dtype_bits(given)

    def move(offset: Any, lanes: int) -> None:
        value = source.vload([start + offset], kind(given, lanes))
        if given == "float32" != dtype:
            value = T.call_extern(kind(dtype, lanes), ROUND.format(lanes), value)
        elif dtype != given:
            value = T.cast(value, kind(dtype, lanes))
        T.buffer_store(target, value, [span(to + offset, lanes)])

    whole = extent // most
    if whole > 1:
        with T.serial(0, whole) as turn:
            move(turn * most, most)
    elif whole:
        move(0, most)
    for offset, lanes in pieces(extent - whole * most, most):
        move(whole * most + offset, lanes)


def dtype_bits(dtype: str) -> int:
    """Return the bits of a number of a type."""
    return int("".join(filter(str.isdigit, dtype)))


def overrun(extent: int) -> int:
    """Return the elements of the one vector that copies `extent` and some more; 0 if that is no gain."""
    if extent >= MAX_VECTOR or len(pieces(extent, MAX_VECTOR)) < 2:
        return 0
    return 1 << (extent - 1).bit_length()


def filled(target: Any, to: Any, extent: int, value: int, dtype: str) -> None:
    """Emit a store of the same number to `extent` elements."""

    def fill(offset: Any, lanes: int) -> None:
        number = getattr(T, dtype)(value)
        stored = T.broadcast(number, lanes) if lanes > 1 else number
        T.buffer_store(target, stored, [span(to + offset, lanes)])

    whole = extent // MAX_VECTOR
    if whole:
        with T.serial(0, whole) as turn:
            fill(turn * MAX_VECTOR, MAX_VECTOR)
    for offset, lanes in pieces(extent - whole * MAX_VECTOR, MAX_VECTOR):
        fill(whole * MAX_VECTOR + offset, lanes)


def gathered(
    shape: Geometry, data: Any, row: Any, target: Any, to: Any, dtype: str, *, in_order: bool
) -> None:
    """Emit a copy of the pixels that result number `row` reads, in the order of weights, from `to` on.

    With `in_order`, rows are copied one after the other and some elements may be written beyond each: fewer
    than `MAX_VECTOR`.
    """
    (high, wide), channels = shape.kernel, shape.channels
    pixel = row % (shape.out_height * shape.out_width)
    image = row // (shape.out_height * shape.out_width) * shape.height
    top = pixel // shape.out_width * shape.stride[0] - shape.padding[0]
    left = pixel % shape.out_width * shape.stride[1] - shape.padding[1]

    def start(y: Any, x: Any) -> Any:
        return ((image + y) * shape.width + x) * channels

    def apart(y: Any, ky: Any, inside: Any) -> None:
        for kx in range(wide):
            x, place = left + kx * shape.dilation[1], to + (ky * wide + kx) * channels
            if inside is None:
                copied(target, place, data, start(y, x), channels, dtype)
                continue
            with T.If(T.And(inside, T.And(x >= 0, x < shape.width))):
                with T.Then():
                    copied(target, place, data, start(y, x), channels, dtype)
                with T.Else():
                    filled(target, place, channels, shape.zero, dtype)

    with T.serial(0, high) as ky:
        y = top + ky * shape.dilation[0]
        together = shape.dilation[1] == 1
        if not any(shape.padding):
            if together:
                copied(target, to + ky * (wide * channels), data, start(y, left), wide * channels, dtype)
            else:
                apart(y, ky, None)
            return
        valid = T.And(y >= 0, y < shape.height)
        if not together:
            apart(y, ky, valid)
            return
        within, extent = T.And(left >= 0, left + wide <= shape.width), wide * channels
        more = overrun(extent) if in_order and str(data.dtype) != "float32" and dtype != "int16" else 0
        if more:  # what is read beyond the row must be there
            total = shape.batch * shape.height * shape.width * channels
            within = T.And(within, start(y, left) + more <= total)
        with T.If(T.And(valid, within)):
            with T.Then():
                copied(target, to + ky * extent, data, start(y, left), more or extent, dtype)
            with T.Else():
                apart(y, ky, valid)
