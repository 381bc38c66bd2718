"""Products of matrices by groups of rows, as mixtures of experts have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from wmsched.relax.importers.aten.node import Node, is_float, long

op = relax.op


def grouped(node: Node) -> Any:
    """Grouped_mm: rows [S, K] by the matrix [K, N] of their group, by the groups' ends."""
    names = list(node.arguments)
    shape, matrices = node.shape_of(names[0]), node.shape_of(names[1])
    if len(shape) != 2 or len(matrices) != 3 or not node.has("offs"):
        node.refuse("only rows of a matrix by one matrix a group are supported")
    if node.arguments.get("bias") is not None or not is_float(node.dtype()):
        node.refuse("a bias, and elements that are no floats, are not supported")
    (rows, depth), (groups, _, width) = shape, matrices
    if not rows or not depth or not width:
        return node.emit(op.zeros((rows, width), node.dtype()))
    places = relax.const(np.arange(rows, dtype=np.int64)[:, None], "int64")
    ends = node.reshape(node.cast(node["offs"], "int64"), (1, groups))
    group = node.emit(op.sum(node.cast(node.emit(op.less_equal(ends, places)), "int64"), axis=1))
    dtype = node.dtype()

    def product(left: Any, right: Any, which: Any) -> Any:
        inner = te.reduce_axis((0, tirx.IntImm("int64", depth)), name="k")

        def element(row: Any, column: Any) -> Any:
            own = te.min(which(row), tirx.const(groups - 1, "int64"))
            found = left(row, inner).astype("float32") * right(own, inner, column).astype("float32")
            inside = which(row) < tirx.const(groups, "int64")
            return te.sum(tirx.Select(inside, found, tirx.const(0, "float32")), axis=inner)

        found = te.compute(long((rows, width)), element, name="grouped")
        if dtype == "float32":
            return found
        return te.compute(found.shape, lambda *place: found(*place).astype(dtype), name="narrow")

    if dtype == "float64":
        node.refuse("elements of float64 are not supported")
    return node.compute(product, node[names[0]], node[names[1]], group)


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    "aten._grouped_mm.default": grouped,
    "transformers.grouped_mm_fallback.default": grouped,  # transformers' own, with the same arguments
}
