"""Kernel of float32 products with constant weights, and of convolutions as such: one schedule, by a rule.

A block of rows by vectors of columns has its sums in registers, as in Goto and van de Geijn, "Anatomy of
High-Performance Matrix Multiplication" (2008). Weights are packed once and padded with zeros to whole
vectors, so any number of rows and columns has blocks of one size. Rows of a convolution are gathered first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm.script.ir_builder import tirx as T

from wmsched.relax.choices.blocks import Blocks, blocks_of
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.depthwise import geometry_of
from wmsched.relax.choices.epilogue import COLUMN, TENSOR, Epilogue
from wmsched.relax.choices.multiplication import (
    all_columns,
    emit_call,
    multiplication,
    of_columns,
    packed_lines,
)
from wmsched.relax.int8.finish import kind, pieces
from wmsched.relax.int8.gather import gathered
from wmsched.relax.int8.geometry import Geometry
from wmsched.relax.int8.product import begin_of, count_of, kernel, named, whole
from wmsched.relax.passes.fold_constants import array_of
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["packed_weights", "product_kernel", "product_of", "weights_of"]

MATMUL = "relax.matmul"


def weights_of(call: Any) -> NDArray[np.float32]:
    """Return the weights of a convolution with channels last, or of a product: [depth, outputs].

    They are [matrices, depth, outputs] if each matrix of a product's data has its own.
    """
    weights = array_of(call.args[1])
    if str(call.op.name) != MATMUL:
        return weights.reshape(-1, weights.shape[-1])
    matrices = weights.reshape(-1, *weights.shape[-2:])
    return matrices[0] if len(matrices) == 1 or (matrices == matrices[0]).all() else matrices


def product_of(call: Any) -> tuple[Geometry, int]:
    """Return `product_kernel`'s shape and count of a convolution with channels last, or of a product."""
    given, right = shape_of(call.args[0]), shape_of(call.args[1])
    assert given is not None and right is not None
    if str(call.op.name) != MATMUL:
        return geometry_of(call), 0
    shared = isinstance(call.args[1], tvm.ir.Constant) and weights_of(call).ndim == 2
    rows = math.prod(given[:-1]) if shared else given[-2]
    shape = Geometry(batch=1, height=rows, width=1, channels=right[-2], outputs=right[-1])
    return shape, 0 if shared else math.prod(given[:-2])


def packed_weights(weights: NDArray[np.float32], blocks: Blocks) -> NDArray[np.float32]:
    """Return weights as the kernel reads them: [block][depth][vectors][lanes], flat, matrix after matrix.

    Parameters
    ----------
    weights : array [..., depth, outputs]
    """
    if weights.ndim > 2:
        matrices = weights.reshape(-1, *weights.shape[-2:])
        return np.concatenate([packed_weights(each, blocks) for each in matrices])
    depth, outputs = weights.shape
    width = blocks.vectors * blocks.lanes
    columns = count_of(outputs, blocks.lanes) * blocks.lanes
    found = np.zeros(depth * columns, weights.dtype)
    for start in range(0, outputs, width):
        part = weights[:, start : start + width]
        place = found[depth * start : depth * min(start + width, columns)].reshape(depth, -1)
        place[:, : part.shape[1]] = part
    return found


def product_kernel(
    shape: Geometry,
    epilogue: Epilogue,
    core: Core,
    given: tuple[int, ...],
    result: tuple[int, ...],
    count: int = 0,
    right: tuple[int, ...] = (),
) -> Any:
    """Return the function (data, weights, [operands], result); the weights are `packed_weights`.

    Parameters
    ----------
    shape : Geometry
        Of one product.
    given, result : tuple of int
        Shapes of data and result, with the channels last.
    count : int
        Of products that have weights of their own; 0 if there is one product.
    right : tuple of int
        Of products of two computed tensors of matrices, the shape of the right ones: the function has them in
        place of weights, and packs them at each call.
    """
    blocks = blocks_of(shape, core, count)
    columns = count_of(shape.outputs, blocks.lanes) * blocks.lanes
    wanted = {
        "data": (given, "float32"),
        "weights": (right or (max(count, 1) * columns * shape.depth,), "float32"),
        **epilogue.wanted(result),
        "result": (result, "float32"),
    }
    what = ", ".join([shape.words, *([f"{count} times"] if count else []), *epilogue.words])
    operations = max(count, 1) * shape.operations
    return kernel(
        "product",
        wanted,
        lambda flat: _Writer(shape, blocks, epilogue, flat, count, packs=bool(right)).write(),
        what,
        operations,
    )


class _Writer:
    """Writer of the loops over blocks."""

    def __init__(
        self,
        shape: Geometry,
        blocks: Blocks,
        epilogue: Epilogue,
        flat: dict[str, Any],
        count: int,
        packs: bool,
    ) -> None:
        self.shape, self.blocks, self.epilogue, self.flat, self.count = shape, blocks, epilogue, flat, count
        self.turns, self.packs = count_of(shape.rows, blocks.rows), packs
        self.fetches = blocks.held or (count > 0 and not packs)  # weights that come from memory and are next
        self.width = blocks.vectors * blocks.lanes
        self.parts = count_of(shape.outputs, self.width)
        #: Blocks of rows share the next weights: fetched by one of them, they would wait for memory.
        self.again = self.turns if blocks.held else min(blocks.group, self.turns) if shape.direct else 1
        self.matrix = count_of(shape.outputs, blocks.lanes) * blocks.lanes * shape.depth  # packed, numbers
        self.weights = flat["weights"]

    def write(self) -> None:
        """Emit everything."""
        if self.packs:
            self._pack()
        if self.blocks.held:
            self._by_columns()
        else:
            self._by_rows()

    def _pack(self) -> None:
        """Emit the packing of the right matrices, as of `packed_weights`; what is beyond them is zero."""
        shape, lanes = self.shape, self.blocks.lanes
        packed = named("packed", T.alloc_buffer((self.count * self.matrix,), "float32"))

        def pack(which: Any, part: Any, columns: int) -> None:
            begin = which * self.matrix + part * (self.width * shape.depth)

            def source(step: Any, offset: int) -> Any:
                return (which * shape.depth + step) * shape.outputs + part * self.width + offset

            packed_lines(packed, begin, self.flat["weights"], source, shape.depth, columns, lanes)

        with T.parallel(0, self.count * self.parts) as task:
            which = task // self.parts
            of_columns(
                task % self.parts,
                shape.outputs,
                self.width,
                lambda part, columns: pack(which, part, columns),
            )
        self.weights = packed

    def _by_rows(self) -> None:
        shape, blocks = self.shape, self.blocks
        groups, data = count_of(self.turns, blocks.group), self.flat["data"]
        with T.parallel(0, max(self.count, 1) * groups) as task:
            which = task // groups if self.count else T.int32(0)
            first = (task % groups if self.count else task) * blocks.group
            turns: Any = blocks.group
            if self.turns % blocks.group:
                turns = T.min(blocks.group, self.turns - first)
            if shape.direct:  # weights are the nearer the fewer there are between two blocks of rows

                def rows(part: Any, columns: int) -> None:
                    with T.serial(0, turns) as turn:
                        row = begin_of(first + turn, blocks.rows, shape.rows)
                        self._block(
                            which, data, (which * shape.rows + row) * shape.depth, row, part, columns, turn
                        )

                all_columns(shape.outputs, self.width, rows)
                return
            with T.serial(0, turns) as turn:
                row = begin_of(first + turn, blocks.rows, shape.rows)
                copied = named("rows", T.alloc_buffer((blocks.rows * shape.depth,), "float32"))
                with T.serial(0, blocks.rows) as k:
                    self._gather(row + k, copied, k * shape.depth)
                all_columns(
                    shape.outputs,
                    self.width,
                    lambda part, columns: self._block(which, copied, T.int32(0), row, part, columns),
                )

    def _by_columns(self) -> None:
        shape, blocks, data = self.shape, self.blocks, self.flat["data"]
        if not shape.direct:
            data = named("rows", T.alloc_buffer((shape.rows * shape.depth,), "float32"))
            with T.parallel(0, shape.rows) as k:
                self._gather(k, data, k * shape.depth)

        def rows(part: Any, columns: int) -> None:
            with T.serial(0, self.turns) as turn:
                row = begin_of(turn, blocks.rows, shape.rows)
                self._block(T.int32(0), data, row * shape.depth, row, part, columns, turn)

        with T.parallel(0, self.parts) as part:
            of_columns(part, shape.outputs, self.width, rows)

    def _gather(self, row: Any, target: Any, to: Any) -> None:
        gathered(self.shape, self.flat["data"], row, target, to, "float32", in_order=False)

    def _block(
        self, which: Any, data: Any, start: Any, row: Any, part: Any, columns: int, turn: Any = 0
    ) -> None:
        """Emit the results of a block of rows, the `turn`th, and of some columns from block `part` on."""
        shape, (rows, lanes) = self.shape, (self.blocks.rows, self.blocks.lanes)
        wide = count_of(columns, lanes)
        begin = which * self.matrix + part * (self.width * shape.depth)
        first, line = part * self.width, which * shape.rows + row
        ahead, following = 0, []
        if self.fetches:
            ahead = count_of(wide * lanes, self.again)
            following = [self.weights[begin + shape.depth * (wide * lanes) + turn * (shape.depth * ahead)]]
        ends = self.epilogue.chain() if columns % lanes == 0 else None
        if ends is not None:
            place = line * shape.outputs + first
            at = {COLUMN: first, TENSOR: place}
            more = [self.flat[f"operand{int(one.which)}"][at[one.kind]] for one in ends if one.kind in at]
            code = multiplication(rows, wide, lanes, shape.depth, line=shape.outputs, ahead=ahead, ends=ends)
            emit_call(code, data[start], self.weights[begin], self.flat["result"][place], *following, *more)
            return
        sums = whole(named(f"sums_{wide}", T.alloc_buffer((rows * wide * lanes,), "float32", scope="local")))
        code = multiplication(rows, wide, lanes, shape.depth, ahead=ahead)
        emit_call(code, data[start], self.weights[begin], sums[0], *following)
        with T.serial(0, rows) as i:
            for j in range(wide):
                for offset, own in pieces(min(lanes, columns - j * lanes), lanes):
                    channel = first + (j * lanes + offset)
                    value = sums.vload([(i * wide + j) * lanes + offset], kind("float32", own))
                    self.epilogue.store(self.flat, value, own, channel, (line + i) * shape.outputs + channel)
