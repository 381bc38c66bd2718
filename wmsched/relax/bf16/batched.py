"""Kernels of products of two computed tensors, such as attention's, each of many matrices side by side.

The right matrices are rounded and packed at each call, one matrix for all rows of the left one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.dots import ROUND, TILE, Dot
from wmsched.relax.int8.finish import Columns, RealFinish, kind, pieces, span
from wmsched.relax.int8.gather import MAX_VECTOR, filled, gathered
from wmsched.relax.int8.geometry import Blocking, Geometry, blocking, tiles_of
from wmsched.relax.int8.product import (
    Body,
    begin_of,
    block,
    count_of,
    instructions,
    kernel,
    multiplying,
    named,
)

ELEMENT = "uint16"  # bfloat16 numbers as their bits
Shape = tuple[int, ...]


def batched_kernel(count: int, shape: Geometry, dot: Dot, given: tuple[Shape, Shape], result: Shape) -> Any:
    """Return the function (left, right, result) of `count` products of matrices, in float32.

    Parameters
    ----------
    shape : Geometry
        Of one product.
    given, result : tuple of int
        Shapes of both operands, and of the result.
    """
    blocks = blocking(shape, dot, 1)
    tiles = tiles_of(shape.outputs)
    wanted = {"left": (given[0], "float32"), "right": (given[1], "float32"), "result": (result, "float32")}

    def write(flat: dict[str, Any]) -> None:
        columns = Columns(None, None, None, flat["result"])
        with instructions(dot), T.parallel(0, count) as task:
            packed = named("packed", T.alloc_buffer((tiles * TILE * blocks.depth,), ELEMENT))
            _pack(shape, blocks, flat["right"], task * (shape.depth * shape.outputs), packed)
            rows = named("rows", T.alloc_buffer((shape.rows * blocks.depth + MAX_VECTOR,), ELEMENT))
            missing = blocks.depth - shape.depth
            with T.serial(0, shape.rows) as k:
                row, to = task * shape.rows + k, k * blocks.depth
                gathered(shape, flat["left"], row, rows, to, ELEMENT, in_order=True)
                if missing:
                    filled(rows, to + shape.depth, missing, 0, ELEMENT)
            body = Body(shape, blocks, dot, RealFinish(), columns, rows, packed, None)
            parts, turns = count_of(tiles, blocks.columns), count_of(shape.rows, blocks.rows)
            with multiplying(body), T.grid(parts, turns) as (part, turn):
                row = begin_of(turn, blocks.rows, shape.rows)
                tile = begin_of(part, blocks.columns, tiles)
                block(body, rows, row * blocks.depth, task * shape.rows + row, tile)

    what = f"{shape.words}, {count} times, bfloat16"
    return kernel("bfloat16_batched_product", wanted, write, what, count * shape.operations)


def _pack(shape: Geometry, blocks: Blocking, right: Any, start: Any, packed: Any) -> None:
    """Emit the packing of a matrix [depth, outputs] as `weights.packed` has it, with zeros in the padding."""
    depth, outputs = shape.depth, shape.outputs
    whole, rest = divmod(outputs, TILE)

    def rounded(k: Any, column: Any, lanes: int) -> Any:
        value = right.vload([start + k * outputs + column], kind("float32", lanes))
        short = T.call_extern(kind(ELEMENT, lanes), ROUND.format(lanes), value)
        return T.cast(short, kind("uint32", lanes))

    def pair(step: Any, column: Any, place: Any, lanes: int, *, both: bool) -> None:
        value = rounded(2 * step, column, lanes)
        if both:
            bits = T.broadcast(T.uint32(16), lanes) if lanes > 1 else T.uint32(16)
            value = value | (rounded(2 * step + 1, column, lanes) << bits)
        T.buffer_store(packed, T.reinterpret(kind(ELEMENT, 2 * lanes), value), [span(place, 2 * lanes)])

    def line(step: Any, *, both: bool) -> None:
        _each(whole, lambda tile: pair(step, tile * TILE, _place(blocks, tile, step), TILE, both=both))
        if rest:
            filled(packed, _place(blocks, whole, step), 2 * TILE, 0, ELEMENT)
        for offset, lanes in pieces(rest, TILE):
            place = _place(blocks, whole, step) + 2 * offset
            pair(step, T.int32(whole * TILE + offset), place, lanes, both=both)

    _each(depth // 2, lambda step: line(step, both=True))
    if depth % 2:
        line(T.int32(depth // 2), both=False)
    for step in range(-(-depth // 2), blocks.depth // 2):
        with T.serial(0, tiles_of(outputs)) as tile:
            filled(packed, _place(blocks, tile, step), 2 * TILE, 0, ELEMENT)


def _place(blocks: Blocking, tile: Any, step: Any) -> Any:
    return tile * (TILE * blocks.depth) + step * (2 * TILE)


def _each(count: int, emit: Callable[[Any], None]) -> None:
    """Emit a loop; nothing for a count of 0."""
    if count:
        with T.serial(0, count) as k:
            emit(k)
