"""Winograd's convolution F(m, 3): two transforms, and a product for each of the (m + 2)^2 places of a tile.

Lavin and Gray (2016): ``Y = A^T [(G g G^T) * (B^T d B)] A`` for a tile of m by m results. The weights are
transformed in float64 at compile time. The product of all tiles is one batched product, which is searched
and constructed like any other. The transforms are TensorIR that is scheduled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from wmsched.relax.choices.epilogue import Epilogue
from wmsched.relax.int8.finish import pieces, span
from wmsched.relax.int8.product import kernel, named

LANES = 16  # channels that a transform computes at once
KERNEL = 3


@dataclass(frozen=True)
class Matrices:
    """The matrices of F(m, 3): ``A^T [m, n]``, ``B^T [n, n]`` and ``G [n, 3]``, with n = m + 2."""

    a: np.ndarray
    b: np.ndarray
    g: np.ndarray

    @property
    def results(self) -> int:
        """Return m, the results of a tile along one axis."""
        return len(self.a)

    @property
    def places(self) -> int:
        """Return n, the pixels that a tile reads along one axis."""
        return len(self.b)


#: By m. The points are 0, 1, -1 and infinity, for four results also 2 and -2.
MATRICES = {
    2: Matrices(
        np.array([[1, 1, 1, 0], [0, 1, -1, -1]]),
        np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
        np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    ),
    4: Matrices(
        np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]),
        np.array(
            [
                [4, 0, -5, 0, 1, 0],
                [0, -4, -4, 1, 1, 0],
                [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0],
                [0, 2, -1, -2, 1, 0],
                [0, 4, 0, -5, 0, 1],
            ]
        ),
        np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24.0,
    ),
}


@dataclass(frozen=True)
class Tiles:
    """The tiles of a convolution of kernel 3 and stride 1 with channels last.

    Parameters
    ----------
    data, result : (N, H, W, C)
    top, left : int
        Padding.
    matrices : Matrices
    """

    data: tuple[int, int, int, int]
    result: tuple[int, int, int, int]
    top: int
    left: int
    matrices: Matrices

    @property
    def rows(self) -> int:
        """Return the tiles from top to bottom."""
        return -(-self.result[1] // self.matrices.results)

    @property
    def columns(self) -> int:
        """Return the tiles from left to right."""
        return -(-self.result[2] // self.matrices.results)

    @property
    def count(self) -> int:
        """Return the tiles of all images."""
        return self.data[0] * self.rows * self.columns

    @property
    def transformed(self) -> tuple[int, int, int]:
        """Return the shape of the data after their transform."""
        return self.matrices.places**2, self.count, self.data[3]

    @property
    def products(self) -> tuple[int, int, int]:
        """Return the shape of the products, before the transform of the result."""
        return self.matrices.places**2, self.count, self.result[3]


def transformed_weights(weights: np.ndarray, matrices: Matrices) -> np.ndarray:
    """Return ``G g G^T`` of weights ``[3, 3, C, O]`` as ``[n^2, C, O]``, computed in float64."""
    found = np.einsum("ij,jkco,lk->ilco", matrices.g, weights.astype(np.float64), matrices.g)
    return np.ascontiguousarray(found.reshape(-1, *weights.shape[2:]).astype(weights.dtype))


def data_kernel(tiles: Tiles) -> Any:
    """Return the function (data, transformed) of ``B^T d B``; what lies beyond the image is zero."""
    m, n, (_, height, width, channels) = tiles.matrices.results, tiles.matrices.places, tiles.data

    def write(flat: dict[str, Any]) -> None:
        with T.parallel(0, tiles.count) as tile:  # rows of tiles may be as few as threads
            line, column = tile // tiles.columns, tile % tiles.columns
            image, top = line // tiles.rows * height, line % tiles.rows * m - tiles.top
            left = column * m - tiles.left

            def pixel(i: int, j: int, channel: Any, lanes: int) -> Any:
                y, x = top + i, left + j
                inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
                near = (image + T.max(T.min(y, height - 1), 0)) * width + T.max(T.min(x, width - 1), 0)
                found = flat["data"].vload([near * channels + channel], _type(lanes))
                return T.Select(inside, found, _zero(lanes))

            def store(place: int, channel: Any, value: Any, lanes: int) -> None:
                at = (place * tiles.count + tile) * channels + channel
                T.buffer_store(flat["transformed"], value, [span(at, lanes)])

            _each(channels, lambda channel, lanes: _both(tiles.matrices.b, pixel, store, channel, lanes))

    wanted = {"data": (tiles.data, "float32"), "transformed": (tiles.transformed, "float32")}
    assert n == len(tiles.matrices.b)
    return kernel("winograd_data", wanted, write)


def result_kernel(tiles: Tiles, epilogue: Epilogue) -> Any:
    """Return the function (products, [operands], result) of ``A^T M A`` and an epilogue."""
    m, n, (_, height, width, channels) = tiles.matrices.results, tiles.matrices.places, tiles.result

    def write(flat: dict[str, Any]) -> None:
        with T.parallel(0, tiles.count) as tile:
            line, column = tile // tiles.columns, tile % tiles.columns
            image, top, left = line // tiles.rows * height, line % tiles.rows * m, column * m

            def product(i: int, j: int, channel: Any, lanes: int) -> Any:
                at = ((i * n + j) * tiles.count + tile) * channels + channel
                return flat["products"].vload([at], _type(lanes))

            def store(place: int, channel: Any, value: Any, lanes: int) -> None:
                y, x = top + place // m, left + place % m
                at = ((image + y) * width + x) * channels + channel
                bounds = [y < height] if height % m and place // m else []
                bounds += [x < width] if width % m and place % m else []
                if not bounds:
                    epilogue.store(flat, value, lanes, channel, at)
                    return
                with T.If(tirx.all(*bounds)), T.Then():
                    epilogue.store(flat, value, lanes, channel, at)

            _each(channels, lambda channel, lanes: _both(tiles.matrices.a, product, store, channel, lanes))

    wanted = {
        "products": (tiles.products, "float32"),
        **epilogue.wanted(tiles.result),
        "result": (tiles.result, "float32"),
    }
    return kernel("winograd_result", wanted, write)


def _each(channels: int, emit: Any) -> None:
    """Emit a loop over the channels, in vectors."""
    whole = channels // LANES
    if whole:
        with T.serial(0, whole) as block:
            emit(block * LANES, LANES)
    for start, lanes in pieces(channels - whole * LANES, LANES):
        emit(T.int32(whole * LANES + start), lanes)


def _both(matrix: np.ndarray, load: Any, store: Any, channel: Any, lanes: int) -> None:
    """Emit ``matrix x matrix^T`` of the numbers that `load` gives at [i, j].

    Columns come first. A number is read once, into a local buffer that becomes registers.
    """
    outs, ins = matrix.shape
    half = named(f"half_{lanes}", T.alloc_buffer((outs * ins * lanes,), "float32"))
    own = named(f"own_{lanes}", T.alloc_buffer((ins * lanes,), "float32"))
    for j in range(ins):
        for i in range(ins):
            T.buffer_store(own, load(i, j, channel, lanes), [span(i * lanes, lanes)])
        column = [own.vload([i * lanes], _type(lanes)) for i in range(ins)]
        for k in range(outs):
            T.buffer_store(half, _sum(matrix[k], column), [span((k * ins + j) * lanes, lanes)])
    for k in range(outs):
        row = [half.vload([(k * ins + j) * lanes], _type(lanes)) for j in range(ins)]
        for o in range(outs):
            store(k * outs + o, channel, _sum(matrix[o], row), lanes)


def _sum(factors: Any, values: list[Any]) -> Any:
    """Return the sum of values times small whole numbers, without products by zero, one or minus one."""
    found = None
    for factor, value in sorted(zip(map(int, factors), values, strict=True), key=lambda pair: -pair[0]):
        if not factor:
            continue
        scaled = value if abs(factor) == 1 else value * _number(abs(factor), value)
        if found is None:
            found = scaled if factor > 0 else scaled * _number(-1, value)
        else:
            found = found + scaled if factor > 0 else found - scaled
    return found


def _number(number: float, like: Any) -> Any:
    lanes = int(str(like.ty.dtype if hasattr(like, "ty") else like.dtype).partition("x")[2] or 1)
    return T.broadcast(T.float32(number), lanes) if lanes > 1 else T.float32(number)


def _zero(lanes: int) -> Any:
    return T.broadcast(T.float32(0), lanes) if lanes > 1 else T.float32(0)


def _type(lanes: int) -> str:
    return f"float32x{lanes}" if lanes > 1 else "float32"
