"""Kernels of eight-bit depthwise convolutions: vectors run along the channels, sums stay in registers.

The bytes of a column of a window are put side by side in 32-bit lanes, so that one dot product multiplies
them all. Neighbouring pixels share such columns.
"""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.dots import TILE, Dot, accumulated
from wmsched.relax.int8.finish import Columns, Finish, finish, kind, pieces
from wmsched.relax.int8.geometry import Geometry, tiles_of
from wmsched.relax.int8.product import kernel

MAX_PIXELS = 6  # of a row that are computed at once


def depthwise_kernel(
    shape: Geometry, steps: Finish, dot: Dot, given: tuple[int, ...], result: tuple[int, ...]
) -> Any:
    """Return the function (data, weights, bias, factor, [shift], [residual], result).

    The arguments are those of `product_kernel`, with weights of `weights.packed_depthwise`.
    """
    columns = tiles_of(shape.channels) * TILE
    taps = -(-shape.kernel[0] // dot.unit) * shape.kernel[1]
    numbers = ((columns,), "float32")
    wanted = {
        "data": (given, "uint8"),
        "weights": ((taps * columns * dot.unit,), "int16" if dot.widened else "int8"),
        "bias": ((columns,), "int32"),
        "factor": numbers,
        **({"shift": numbers} if steps.shifted else {}),
        **({"residual": (result, "uint8")} if steps.residual else {}),
        "result": (result, "uint8" if steps.quantized else "float32"),
    }
    return kernel("int8_depthwise", wanted, lambda flat: _Writer(shape, steps, dot, flat).write())


class _Writer:
    """Writer of the loops over rows, vectors of channels, and pixels."""

    def __init__(self, shape: Geometry, steps: Finish, dot: Dot, flat: dict[str, Any]) -> None:
        self.shape, self.steps, self.dot, self.flat = shape, steps, dot, flat
        self.columns = Columns(flat["factor"], flat.get("shift"), flat.get("residual"), flat["result"])
        span = shape.dilation[1] * (shape.kernel[1] - 1)
        stride, left = shape.stride[1], shape.padding[1]
        #: Pixels of a row whose windows lie within the image: from, to.
        self.first = min(-(-left // stride), shape.out_width)
        self.last = max(min((shape.width - 1 - span + left) // stride + 1, shape.out_width), self.first)

    def write(self) -> None:
        """Emit everything."""
        shape = self.shape
        with T.parallel(0, shape.batch * shape.out_height) as line:
            top = line % shape.out_height * shape.stride[0] - shape.padding[0]
            image = line // shape.out_height * shape.height
            reach = shape.dilation[0] * (shape.kernel[0] - 1)
            if not any(shape.padding[::2]):
                self._line(line, image, top, checked=False)
                return
            with T.If(T.And(top >= 0, top + reach < shape.height)):
                with T.Then():
                    self._line(line, image, top, checked=False)
                with T.Else():
                    self._line(line, image, top, checked=True)

    def _line(self, line: Any, image: Any, top: Any, *, checked: bool) -> None:
        lanes, channels = self.dot.lanes, self.shape.channels
        whole = channels // lanes
        with T.serial(0, whole) as turn:
            self._pixels(line, image, top, turn * lanes, lanes, checked)
        for start, count in pieces(channels - whole * lanes, lanes):
            self._pixels(line, image, top, T.int32(whole * lanes + start), count, checked)

    def _pixels(self, line: Any, image: Any, top: Any, channel: Any, lanes: int, checked: bool) -> None:
        """Emit one row's pixels for some channels: those at the edges, and those between in groups."""

        def group(x: Any, count: int) -> None:
            for k in range(count):
                self._pixel(line, image, top, channel, lanes, x + k, checked)

        for x in (*range(self.first), *range(self.last, self.shape.out_width)):
            group(x, 1)
        inside = self.last - self.first
        count = min(inside, MAX_PIXELS)
        if not count:
            return
        with T.serial(0, -(-inside // count)) as turn:
            begin = turn * count
            group(self.first + (begin if inside % count == 0 else T.min(begin, inside - count)), count)

    def _pixel(
        self, line: Any, image: Any, top: Any, channel: Any, lanes: int, x: Any, checked: bool
    ) -> None:
        (high, wide), unit = self.shape.kernel, self.dot.unit
        sums = self.flat["bias"].vload([channel], kind("int32", lanes))
        for group in range(0, high, unit):
            for kx in range(wide):
                rows = range(group, min(group + unit, high))
                numbers = [self._number(image, top, channel, lanes, x, ky, kx, checked) for ky in rows]
                sums = self._added(sums, numbers, (group // unit) * wide + kx, channel, lanes)
        place = (line * self.shape.out_width + x) * self.shape.channels + channel
        finish(self.steps, self.columns, sums, lanes, channel, place)

    def _number(
        self, image: Any, top: Any, channel: Any, lanes: int, x: Any, ky: int, kx: int, checked: bool
    ) -> Any:
        """Return the bytes under a tap as int32 lanes; beyond the image they are the zero point."""
        shape = self.shape
        zero = _spread(shape.zero, lanes)
        column = x * shape.stride[1] - shape.padding[1] + kx * shape.dilation[1]
        if isinstance(x, int) and not 0 <= column < shape.width:
            return zero
        y = top + ky * shape.dilation[0]
        place = ((image + y) * shape.width + column) * shape.channels + channel
        number = T.cast(self.flat["data"].vload([place], kind("uint8", lanes)), kind("int32", lanes))
        return T.if_then_else(T.And(y >= 0, y < shape.height), number, zero) if checked else number

    def _added(self, sums: Any, numbers: list[Any], group: int, channel: Any, lanes: int) -> Any:
        """Return sums plus the products of the numbers of a column with the weights of a group."""
        unit = self.dot.unit
        first = (group * (tiles_of(self.shape.channels) * TILE) + channel) * unit
        bits, element = 32 // unit, "int16" if self.dot.widened else "int8"
        if lanes == self.dot.lanes:
            packed = numbers[0]
            for k, number in enumerate(numbers[1:], 1):
                packed = packed | (number << _spread(k * bits, lanes))
            return accumulated(
                self.dot, sums, packed, self.flat["weights"].vload([first], f"{element}x{lanes * unit}")
            )
        weight = T.reinterpret(
            kind("int32", lanes), self.flat["weights"].vload([first], f"{element}x{lanes * unit}")
        )
        for k, number in enumerate(numbers):
            own = (weight << _spread(32 - (k + 1) * bits, lanes)) >> _spread(32 - bits, lanes)
            sums = sums + number * own
        return sums


def _spread(value: int, lanes: int) -> Any:
    return T.broadcast(T.int32(value), lanes) if lanes > 1 else T.int32(value)
