"""Fourier transforms, determinants, columns to images, and convolutions whose taps move."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from wmsched.relax.importers.operators.node import Node

op = relax.op
MAX_DETERMINANT = 4  # rows; larger ones need pivots


def determinant(node: Node) -> Any:
    """Det of small matrices, by its definition."""
    shape = node.shape()
    size = shape[-1]
    if size > MAX_DETERMINANT:
        node.refuse(f"matrices of {size} rows are not supported; of up to {MAX_DETERMINANT} are")

    def compute(data: Any) -> Any:
        def element(*place: Any) -> Any:
            total: Any = tirx.const(0, data.dtype)
            for order in itertools.permutations(range(size)):
                swaps = sum(a > b for k, a in enumerate(order) for b in order[k + 1 :])
                term: Any = tirx.const(-1 if swaps % 2 else 1, data.dtype)
                for row, column in enumerate(order):
                    term = term * data(*place, row, column)
                total = total + term
            return total

        return te.compute(shape[:-2], element, name="determinant")

    return node.compute(compute, node.inputs[0])


def columns_to_image(node: Node) -> Any:
    """Col2Im: each element of the image adds what the blocks have of it."""
    image = [int(one) for one in node.constant(1, "the image's shape").reshape(-1)]
    block = [int(one) for one in node.constant(2, "the blocks' shape").reshape(-1)]
    rank = len(image)
    steps = node.numbers("strides") or [1] * rank
    dilations = node.numbers("dilations") or [1] * rank
    pads = node.numbers("pads") or [0] * (2 * rank)
    n, rows, _ = node.shape()
    counts = [
        (image[k] + pads[k] + pads[rank + k] - dilations[k] * (block[k] - 1) - 1) // steps[k] + 1
        for k in range(rank)
    ]
    parts = node.reshape(node.inputs[0], (n, rows // math.prod(block), *block, *counts))
    dtype = node.dtype()

    def compute(data: Any) -> Any:
        over = [te.reduce_axis((0, size), name=f"k{k}") for k, size in enumerate(block)]

        def element(*place: Any) -> Any:
            inside: Any = tirx.const(True, "bool")
            which = []
            for k in range(rank):
                away = place[2 + k] + pads[k] - over[k] * dilations[k]
                at = tirx.floordiv(away, tirx.const(steps[k], "int64"))
                inside = tirx.And(inside, tirx.EQ(at * steps[k], away))
                inside = tirx.And(inside, tirx.And(at >= 0, at < counts[k]))
                which.append(te.max(te.min(at, counts[k] - 1), 0))
            value = data(place[0], place[1], *over, *which)
            return te.sum(tirx.Select(inside, value, tirx.const(0, dtype)), axis=over)

        shape = [tirx.IntImm("int64", extent) for extent in (n, rows // math.prod(block), *image)]
        return te.compute(shape, element, name="image")

    return node.compute(compute, parts)


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    "Col2Im": columns_to_image,
    "Det": determinant,
}
