"""Kernels of eight-bit and bfloat16 convolutions and products, as TensorIR that is scheduled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from wmsched.codegen.prefetch import CODE as FETCH
from wmsched.codegen.prefetch import FUNCTION as FETCHES
from wmsched.relax.int8.dots import (
    REQUEST_PERMISSION,
    SUM_BYTES,
    SYS_ARCH_PRCTL,
    TILE,
    TILE_DATA,
    Dot,
    accumulated,
)
from wmsched.relax.int8.finish import Columns, Finish, RealFinish, finish, kind, pieces
from wmsched.relax.int8.gather import MAX_VECTOR, filled, gathered
from wmsched.relax.int8.geometry import TILE_ROWS, Blocking, Geometry, blocking, tiles_of
from wmsched.relax.passes.describe import OPERATIONS, WHAT

#: Of functions that passes and searches leave as they are: 8 is TVM's number of an opaque pattern.
ATTRIBUTES = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}
LINE = 64  # bytes that a cache fetches at once
TILE_NUMBERS = TILE_ROWS * TILE  # sums of an AMX tile


@dataclass
class Body:
    """What the parts of a kernel share while it is written; without a bias sums begin with zeros."""

    shape: Geometry
    blocks: Blocking
    dot: Dot
    steps: Finish | RealFinish
    columns: Columns
    data: Any
    weights: Any
    bias: Any

    @property
    def row_length(self) -> int:
        """Elements from a row of the operand to the next; rows that lie side by side have no padding."""
        return self.blocks.depth


def kernel(
    name: str,
    wanted: dict[str, tuple[tuple[int, ...], str]],
    write: Callable[..., None],
    what: str = "",
    operations: float = 0.0,
) -> Any:
    """Return a scheduled function.

    Parameters
    ----------
    wanted : dict of name to (shape, type)
        Its arguments, the result last.
    write : callable (buffers)
        Emits the body; it gets the arguments by name, as flat buffers.
    what : str
        What it computes, in words, and `operations` of a call: for reports.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr(ATTRIBUTES | ({WHAT: what, OPERATIONS: operations} if what else {}))
        given = {key: T.arg(key, T.buffer(shape, dtype)) for key, (shape, dtype) in wanted.items()}
        with T.sblock("root"):
            T.reads()
            T.writes()
            flat = {
                key: named(f"{key}_flat", T.decl_buffer((math.prod(shape),), dtype, data=given[key].data))
                for key, (shape, dtype) in wanted.items()
            }
            write(flat)
    return builder.get()


def named(name: str, buffer: Any) -> Any:
    """Name a buffer: those of one name share their alias tags."""
    IRBuilder.name(name, buffer)
    return buffer


def whole(buffer: Any) -> Any:
    """Return a buffer that keeps its size although code that TVM does not see writes what nothing reads.

    TVM's `CompactBufferAllocation` cuts a buffer down to the elements that TensorIR reads and writes. An
    address alone counts as one element.
    """
    T.evaluate(buffer.data)
    return buffer


def product_kernel(
    shape: Geometry,
    steps: Finish | RealFinish,
    dot: Dot,
    threads: int,
    given: tuple[int, ...],
    result: tuple[int, ...],
    dtype: str = "",
) -> Any:
    """Return the function (data, weights, bias, factor, [shift], [residual], result).

    Of bfloat16 products it is (data, weights, bias, [residual], result).

    Parameters
    ----------
    given, result : tuple of int
        Shapes of data and result, with the channels last.
    dtype : str
        Type of the data; by default the dot product's.
    """
    dtype = dtype or dot.given
    blocks = blocking(shape, dot, threads, dtype)
    tiles, element = tiles_of(shape.outputs), dot.element
    columns = (tiles * TILE,)
    wanted = {
        "data": (given, dtype),
        "weights": ((tiles * TILE * blocks.depth,), dot.weight),
        "bias": (columns, dot.total),
        **_more_arguments(steps, columns, result),
    }

    def write(flat: dict[str, Any]) -> None:
        ends = Columns(flat.get("factor"), flat.get("shift"), flat.get("residual"), flat["result"])
        parts = Body(shape, blocks, dot, steps, ends, flat["data"], flat["weights"], flat["bias"])
        with instructions(dot):
            if blocks.held:
                _by_weights(parts, element)
            else:
                (_by_rows if blocks.chunks == 1 else _by_columns)(parts, element)

    kind = "bfloat16" if dot.real else "int8"
    return kernel(f"{kind}_product", wanted, write, f"{shape.words}, {kind}", shape.operations)


@contextmanager
def instructions(dot: Dot) -> Iterator[None]:
    """Scope in which a kernel's body may use a dot product's instructions."""
    if dot.amx:
        asked = map(T.int64, (SYS_ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA))
        T.evaluate(T.call_extern("int64", "syscall", *asked))
    with T.attr(T.int32(0), "pragma_import_llvm", dot.code) if dot.code else nullcontext():
        yield


def _more_arguments(
    steps: Finish | RealFinish, columns: tuple[int, ...], result: tuple[int, ...]
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return what a kernel has besides data, weights and bias."""
    if isinstance(steps, RealFinish):
        residual = {"residual": (result, "float32")} if steps.residual else {}
        return {**residual, "result": (result, "uint16" if steps.rounded else "float32")}
    return {
        "factor": (columns, "float32"),
        **({"shift": (columns, "float32")} if steps.shifted else {}),
        **({"residual": (result, "uint8")} if steps.residual else {}),
        "result": (result, "uint8" if steps.quantized else "float32"),
    }


def count_of(extent: int, size: int) -> int:
    """Return the number of blocks of a size in an extent."""
    return -(-extent // size)


def begin_of(block: Any, size: int, extent: int) -> Any:
    """Return where a block begins; the last one overlaps the one before."""
    return block * size if extent % size == 0 else T.min(block * size, extent - size)


def _by_rows(kernel: Body, element: str) -> None:
    """Emit tasks of one block of rows and all columns."""
    shape, blocks = kernel.shape, kernel.blocks
    tiles = tiles_of(shape.outputs)
    with T.parallel(0, count_of(shape.rows, blocks.rows)) as task:
        row = begin_of(task, blocks.rows, shape.rows)
        operand, start = kernel.data, row * kernel.row_length
        if blocks.gathered:
            operand = whole(
                named("rows", T.alloc_buffer((blocks.rows * blocks.depth + MAX_VECTOR,), element))
            )
            with T.serial(0, blocks.rows) as k:
                _gather(kernel, row + k, operand, k * blocks.depth, element, in_order=True)
            start = T.int32(0)
        with multiplying(kernel), T.serial(0, count_of(tiles, blocks.columns)) as part:
            block(kernel, operand, start, row, begin_of(part, blocks.columns, tiles))


def _by_columns(kernel: Body, element: str) -> None:
    """Emit tasks of one block of rows and some columns; one that shares its columns with the next is near."""
    shape, blocks = kernel.shape, kernel.blocks
    tiles, rows = tiles_of(shape.outputs), count_of(shape.rows, blocks.rows)
    parts = count_of(tiles, blocks.columns)
    each = count_of(parts, blocks.chunks)
    operand = _all_rows(kernel, element)
    with T.parallel(0, blocks.chunks * rows) as task:
        row = begin_of(task % rows, blocks.rows, shape.rows)
        with multiplying(kernel), T.serial(0, each) as k:
            part = task // rows * each + k
            part = part if parts % blocks.chunks == 0 else T.min(part, parts - 1)
            block(kernel, operand, row * kernel.row_length, row, begin_of(part, blocks.columns, tiles))


def _by_weights(kernel: Body, element: str) -> None:
    """Emit tasks of one block of columns and all rows."""
    shape, blocks = kernel.shape, kernel.blocks
    tiles, operand = tiles_of(shape.outputs), _all_rows(kernel, element)
    parts, turns = count_of(tiles, blocks.columns), count_of(shape.rows, blocks.rows)
    with T.parallel(0, parts) as part, multiplying(kernel), T.serial(0, turns) as turn:
        row = begin_of(turn, blocks.rows, shape.rows)
        tile = begin_of(part, blocks.columns, tiles)
        block(kernel, operand, row * kernel.row_length, row, tile, (turn, turns))


def _all_rows(kernel: Body, element: str) -> Any:
    """Return the operand of the product; it is gathered first if it is not the data as they lie."""
    shape, blocks = kernel.shape, kernel.blocks
    if not blocks.gathered:
        return kernel.data
    operand = whole(named("rows", T.alloc_buffer((shape.rows * blocks.depth,), element)))
    with T.parallel(0, shape.rows) as k:
        _gather(kernel, k, operand, k * blocks.depth, element, in_order=False)
    return operand


def _gather(kernel: Body, row: Any, operand: Any, to: Any, element: str, *, in_order: bool) -> None:
    """Emit the gathering of a row, with zeros behind it where what lies there might be no number."""
    shape, missing = kernel.shape, kernel.blocks.depth - kernel.shape.depth
    gathered(shape, kernel.data, row, operand, to, element, in_order=in_order)
    if kernel.dot.real and missing:
        filled(operand, to + shape.depth, missing, 0, element)


class multiplying:  # a context manager
    """Scope in which a thread multiplies: AMX's tiles are configured before and released after."""

    def __init__(self, kernel: Body) -> None:
        self.kernel = kernel

    def __enter__(self) -> None:
        if not self.kernel.dot.amx:
            return
        blocks = self.kernel.blocks
        rows = min(blocks.rows, TILE_ROWS)
        config = named("config", T.alloc_buffer((64,), "uint8"))
        written = {0: 1}  # the palette
        for tile in range(8):
            sums, data = tile < 4, tile in (4, 5)
            written[16 + 2 * tile] = blocks.step * self.kernel.dot.size if data else SUM_BYTES * TILE
            written[48 + tile] = rows if sums or data else blocks.step // self.kernel.dot.unit
        for place in range(64):
            T.buffer_store(config, T.uint8(written.get(place, 0)), [place])
        _tile("ldtilecfg", T.address_of(config[0]))

    def __exit__(self, *error: object) -> None:
        if self.kernel.dot.amx:
            _tile("tilerelease")


def _tile(name: str, *arguments: Any) -> None:
    T.evaluate(T.call_llvm_intrin("void", f"llvm.x86.{name}", *arguments))


def block(
    kernel: Body, operand: Any, start: Any, row: Any, tile: Any, turn: tuple[Any, int] | None = None
) -> None:
    """Emit one block of the product: from `start` of the operand, result row `row`, column tile `tile`.

    It fetches its part of the next weights: as the `turn`th of so many blocks of its own weights.
    """
    if kernel.dot.amx:
        _tile_block(kernel, operand, start, row, tile, turn)
    else:
        _vector_block(kernel, operand, start, row, tile)


def _finish_tile(kernel: Body, tile: Any, row: Any, sums: Callable[[int, int], Any], most: int) -> None:
    """Emit the finish of a row of a tile; `sums` loads those from a column on, as many as it is told."""
    outputs = kernel.shape.outputs

    def store(vectors: list[tuple[int, int]]) -> None:
        for column, lanes in vectors:
            first = tile * TILE + column
            finish(kernel.steps, kernel.columns, sums(column, lanes), lanes, first, row * outputs + first)

    every = [(column, most) for column in range(0, TILE, most)]
    if outputs % TILE == 0:
        store(every)
        return
    with T.If(tile < outputs // TILE):
        with T.Then():
            store(every)
        with T.Else():
            store(pieces(outputs % TILE, most))


def _tile_block(
    kernel: Body, operand: Any, start: Any, row: Any, tile: Any, turn: tuple[Any, int] | None
) -> None:
    blocks = kernel.blocks
    rows = min(blocks.rows, TILE_ROWS)
    places = [(i, j) for i in range(count_of(blocks.rows, rows)) for j in range(blocks.columns)]
    dot, total = kernel.dot, kernel.dot.total
    scratch = whole(named("sums", T.alloc_buffer((4 * TILE_NUMBERS,), total)))

    def number(i: int, j: int) -> Any:
        return T.uint8(2 * i + j)

    for i, j in places:  # each row begins with the biases
        if kernel.bias is None:
            _tile("tilezero", number(i, j))
        else:
            _tile("tileloadd64", number(i, j), T.address_of(kernel.bias[(tile + j) * TILE]), T.int64(0))
    length, packed = kernel.row_length, TILE * blocks.depth
    with T.serial(0, blocks.depth // blocks.step) as step:
        for i in sorted({i for i, _ in places}):
            place = start + i * rows * length + step * blocks.step
            _tile("tileloadd64", T.uint8(4 + i), T.address_of(operand[place]), T.int64(length * dot.size))
        for j in range(blocks.columns):
            place = (tile + j) * packed + step * (blocks.step * TILE)
            _tile("tileloadd64", T.uint8(6 + j), T.address_of(kernel.weights[place]), T.int64(64))
        if turn is not None:
            _fetch(kernel, (tile + blocks.columns) * packed, step, *turn)
        for i, j in places:
            _tile("tdpbf16ps" if dot.real else "tdpbusd", number(i, j), T.uint8(4 + i), T.uint8(6 + j))
    for i, j in places:
        place = (2 * i + j) * TILE_NUMBERS
        _tile("tilestored64", number(i, j), T.address_of(scratch[place]), T.int64(SUM_BYTES * TILE))
    for j in range(blocks.columns):
        for i in sorted({i for i, _ in places}):
            with T.serial(0, rows) as k:
                place = (2 * i + j) * TILE_NUMBERS + k * TILE

                def sums(column: int, lanes: int, place: Any = place) -> Any:
                    return scratch.vload([place + column], kind(total, lanes))

                _finish_tile(kernel, tile + j, row + (i * rows + k), sums, TILE)


def _fetch(kernel: Body, begin: Any, step: Any, turn: Any, turns: int) -> None:
    """Emit the fetching of weights from `begin` on, which all steps of all turns share."""
    blocks, line = kernel.blocks, LINE // kernel.dot.size
    steps = blocks.depth // blocks.step
    each = count_of(blocks.columns * (blocks.step // kernel.dot.unit), turns)
    with T.attr(T.int32(0), "pragma_import_llvm", FETCH):
        for k in range(each):
            place = begin + ((turn * steps + step) * each + k) * line
            T.evaluate(T.call_extern("void", FETCHES, T.address_of(kernel.weights[place])))


def _vector_block(kernel: Body, operand: Any, start: Any, row: Any, tile: Any) -> None:
    blocks, dot = kernel.blocks, kernel.dot
    halves, lanes, unit = TILE // dot.lanes, dot.lanes, dot.unit
    places = [(i, j, h) for i in range(blocks.rows) for j in range(blocks.columns) for h in range(halves)]
    whole = kind(dot.total, lanes)
    sums = {
        place: named("sums_" + "_".join(map(str, place)), T.alloc_buffer((lanes,), dot.total))
        for place in places
    }
    for place in places:
        _, j, h = place
        begin = (
            T.broadcast(T.float32(0), lanes)
            if kernel.bias is None
            else kernel.bias.vload([(tile + j) * TILE + h * lanes], whole)
        )
        T.buffer_store(sums[place], begin, [T.ramp(0, 1, lanes)])
    element, weight = kind(dot.element, unit), kind(dot.weight, lanes * unit)
    with T.serial(0, blocks.depth // unit) as step:
        for i in range(blocks.rows):
            place = start + i * kernel.row_length + step * unit
            number = T.broadcast(T.reinterpret("int32", operand.vload([place], element)), lanes)
            for j in range(blocks.columns):
                for h in range(halves):
                    first = (tile + j) * (TILE * blocks.depth) + step * (TILE * unit) + h * lanes * unit
                    own = sums[i, j, h]
                    value = accumulated(
                        dot, own.vload([0], whole), number, kernel.weights.vload([first], weight)
                    )
                    T.buffer_store(own, value, [T.ramp(0, 1, lanes)])
    for j in range(blocks.columns):
        for i in range(blocks.rows):

            def loaded(column: int, count: int, i: int = i, j: int = j) -> Any:
                own = sums[i, j, column // lanes]
                return own.vload([column % lanes], kind(dot.total, count))

            _finish_tile(kernel, tile + j, row + i, loaded, lanes)
