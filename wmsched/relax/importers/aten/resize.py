"""Resampling of images: antialiased, and at places of a grid in volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from wmsched.relax.importers.aten.elementwise import number
from wmsched.relax.importers.aten.node import Node, long

op = relax.op
Convert = Callable[[Node], Any]


def along(node: Node, value: Any, axis: int, matrix: np.ndarray) -> Any:
    """Return a tensor with a matrix [result, input] applied along an axis."""
    rank, kind = len(value.ty.shape), node.dtype_of(value)
    order = [k for k in range(rank) if k != axis] + [axis]
    back = [order.index(k) for k in range(rank)]
    turned = node.emit(op.permute_dims(value, order))
    found = node.emit(op.matmul(turned, node.const(np.ascontiguousarray(matrix.T), kind), out_dtype=kind))
    return node.emit(op.permute_dims(found, back))


def _linear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    x, a = np.abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def weights(size: int, found: int, corners: bool, scale: float | None, cubic: bool) -> np.ndarray:
    """Return the matrix [result, input] of an antialiased filter along an axis."""
    if corners:
        ratio = (size - 1) / (found - 1) if found > 1 else 0.0
    else:
        ratio = 1 / scale if scale else size / found
    support = (2.0 if cubic else 1.0) * max(ratio, 1.0)
    matrix = np.zeros((found, size))
    for k in range(found):
        middle = ratio * (k + 0.5)
        low, high = max(int(middle - support + 0.5), 0), min(int(middle + support + 0.5), size)
        at = (np.arange(low, high) - middle + 0.5) / max(ratio, 1.0)
        row = _cubic(at) if cubic else _linear(at)
        matrix[k, low:high] = row / row.sum() if row.sum() else row
    return matrix


def antialiased(cubic: bool) -> Convert:
    def convert(node: Node) -> Any:
        shape, found, dtype = node.shape_of(node.first), node.shape(), node.dtype()
        scales = [node.arguments.get(name) for name in ("scales_h", "scales_w")]
        value = node.cast(node[node.first], "float64" if dtype == "float64" else "float32")
        for k, scale in zip((2, 3), scales):
            matrix = weights(shape[k], found[k], bool(node["align_corners"]), scale, cubic)
            value = along(node, value, k, matrix)
        return node.cast(value, dtype)

    return convert


def _taps(kind: str, size: int, found: int, corners: bool, ratio: float) -> np.ndarray:
    """Return the matrix [result, input] of an interpolation along an axis."""
    matrix, rows = np.zeros((found, size)), np.arange(found)
    if kind == "nearest":
        matrix[rows, np.minimum(np.floor(rows * ratio).astype(np.int64), size - 1)] = 1
        return matrix
    if corners:
        at = rows * ((size - 1) / (found - 1) if found > 1 else 0.0)
    else:
        at = ratio * (rows + 0.5) - 0.5
    at = at if kind == "bicubic" else np.maximum(at, 0)
    base = np.floor(at)
    for tap in (-1, 0, 1, 2) if kind == "bicubic" else (0, 1):
        part = _convolved(at - base - tap) if kind == "bicubic" else _linear(at - base - tap)
        np.add.at(matrix, (rows, np.clip(base + tap, 0, size - 1).astype(np.int64)), part)
    return matrix


def _convolved(x: np.ndarray) -> np.ndarray:
    """Return cubic convolution's weights, of PyTorch's -0.75."""
    x, a = np.abs(x), -0.75
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x <= 1, near, np.where(x < 2, ((x - 5) * x + 8) * x * a - 4 * a, 0.0))


def upsampled(node: Node) -> Any:
    """Upsample; TVM takes factors for the ratio of sizes, and divides by 0 for one place between corners."""
    shape, found, dtype = node.shape_of(node.first), node.shape(), node.dtype()
    factors, corners = node["scale_factors"], bool(node.arguments.get("align_corners", False))
    exact = factors is None or all(n * f == m for n, f, m in zip(shape[2:], factors, found[2:]))
    if exact and not (corners and 1 in found[2:]):
        return NotImplemented
    kind = next(word for word in ("nearest", "bilinear", "bicubic") if word in node.name)
    value = node.cast(node[node.first], "float64" if dtype == "float64" else "float32")
    for k in (2, 3):
        ratio = shape[k] / found[k] if exact else 1 / factors[k - 2]
        value = along(node, value, k, _taps(kind, shape[k], found[k], corners, ratio))
    return node.cast(value, dtype)


MODES = {0: "bilinear", 1: "nearest"}
PADDINGS = {0: "zeros", 1: "border", 2: "reflection"}


def sampled_volume(node: Node) -> Any:
    """Grid_sampler_3d: elements of a volume at places of a grid."""
    shape, found = node.shape_of(node.first), node.shape()
    mode, padding = MODES[int(node["interpolation_mode"])], PADDINGS[int(node["padding_mode"])]
    corners, dtype = bool(node["align_corners"]), node.dtype()
    extents = shape[2:]

    def compute(data: Any, grid: Any) -> Any:
        def place(n: Any, at: tuple[Any, ...], axis: int) -> Any:
            x, size = grid(n, *at, 2 - axis), extents[axis]
            one = number(1, x)
            if corners:
                x = (x + one) * number((size - 1) / 2, x)
            else:
                x = ((x + one) * number(size, x) - one) * number(0.5, x)
            if padding == "reflection":
                x = _reflected(x, size, corners)
            if padding != "zeros":
                x = te.max(te.min(x, number(size - 1, x)), number(0, x))
            return x

        def value(n: Any, c: Any, at: list[Any]) -> Any:
            inside: Any = tirx.const(True, "bool")
            own = []
            for one, size in zip(at, extents):
                inside = tirx.And(inside, tirx.And(one >= number(0, one), one <= number(size - 1, one)))
                own.append(tirx.Cast("int64", te.max(te.min(one, number(size - 1, one)), number(0, one))))
            return tirx.Select(inside, data(n, c, *own), tirx.const(0, dtype))

        def element(n: Any, c: Any, *at: Any) -> Any:
            x = [place(n, at, axis) for axis in range(3)]
            if mode == "nearest":
                return value(n, c, [te.nearbyint(one) for one in x])
            low = [te.floor(one) for one in x]
            total: Any = tirx.const(0, dtype)
            for corner in range(8):
                bits = [corner >> axis & 1 for axis in range(3)]
                weight: Any = tirx.const(1, dtype)
                for one, base, bit in zip(x, low, bits):
                    part = one - base
                    weight = weight * (part if bit else number(1, part) - part)
                total = total + weight * value(n, c, [a + number(b, a) for a, b in zip(low, bits)])
            return total

        return te.compute(long(found), element, name="sampled")

    return node.compute(compute, node[node.first], node["grid"])


def _reflected(x: Any, size: int, corners: bool) -> Any:
    """Return a coordinate reflected at the borders until it lies within."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span == 0:
        return number(0, x)
    away = te.abs(x - number(low, x))
    turns = te.floor(away / number(span, x))
    rest = away - turns * number(span, x)
    odd = turns - number(2, x) * te.floor(turns * number(0.5, x))
    return tirx.Select(odd > number(0.5, x), number(high, x) - rest, rest + number(low, x))


CONVERTERS: dict[str, Convert] = {
    "aten._upsample_bilinear2d_aa.default": antialiased(False),
    "aten._upsample_bicubic2d_aa.default": antialiased(True),
    **{f"aten.upsample_{kind}2d.vec": upsampled for kind in ("nearest", "bilinear", "bicubic")},
    "aten.grid_sampler_3d.default": sampled_volume,
}
