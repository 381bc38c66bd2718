"""Transposed convolution of volumes, as a convolution of the volume with zeros between its elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from wmsched.relax.importers.aten.node import Node, long

op = relax.op
VOLUME = 5  # dimensions of a batch of volumes


def convolution(node: Node) -> Any:
    """Convolution; TVM's, unless it is the transposed one of volumes or its type is not single precision."""
    shape = node.shape_of("input")
    if not node["transposed"] or len(shape) != VOLUME:
        return NotImplemented
    weight, groups = node.shape_of("weight"), int(node["groups"])
    steps, pads, gaps, more = (
        [int(one) for one in node[name]] for name in ("stride", "padding", "dilation", "output_padding")
    )
    dtype, sizes = node.dtype(), weight[2:]
    wide = [(n - 1) * s + 1 for n, s in zip(shape[2:], steps)]
    before = [g * (k - 1) - p for g, k, p in zip(gaps, sizes, pads)]
    after = [b + m for b, m in zip(before, more)]
    if min(*before, *after) < 0:
        node.refuse("padding beyond the windows is not supported in the transposed form")
    rows, columns = shape[1] // groups, weight[1]

    def stretched(data: Any) -> Any:
        def element(n: Any, c: Any, *place: Any) -> Any:
            inside: Any = tirx.const(True, "bool")
            own = []
            for at, low, extent, step in zip(place, before, wide, steps):
                moved = at - low
                part = tirx.And(moved >= 0, moved < extent)
                inside = tirx.And(
                    inside, tirx.And(part, tirx.EQ(tirx.floormod(moved, step), tirx.const(0, "int64")))
                )
                own.append(tirx.floordiv(te.max(te.min(moved, extent - 1), 0), step))
            return tirx.Select(inside, data(n, c, *own), tirx.const(0, dtype))

        extents = [w + b + a for w, b, a in zip(wide, before, after)]
        return te.compute(long((*shape[:2], *extents)), element, name="stretched")

    def turned(kernel: Any) -> Any:
        def element(o: Any, i: Any, *place: Any) -> Any:
            own = [size - 1 - at for at, size in zip(place, sizes)]
            return kernel(tirx.floordiv(o, columns) * rows + i, tirx.floormod(o, columns), *own)

        return te.compute(long((columns * groups, rows, *sizes)), element, name="turned")

    found = node.emit(
        op.nn.conv3d(
            node.compute(stretched, node["input"]),
            node.compute(turned, node["weight"]),
            dilation=gaps,
            groups=groups,
            out_dtype=dtype,
        )
    )
    if node.has("bias"):
        found = node.emit(op.add(found, node.reshape(node["bias"], (1, columns * groups, 1, 1, 1))))
    return found


CONVERTERS: dict[str, Callable[[Node], Any]] = {"aten.convolution.default": convolution}
