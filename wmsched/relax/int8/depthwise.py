"""Kernels of eight-bit depthwise convolutions: vectors run along the channels, sums stay in registers.

Bytes are widened to 32-bit lanes as they are loaded, and a product of 16 bits adds to its sum in one
instruction. Neighbouring pixels share what they load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.dots import TILE, Dot, paired
from wmsched.relax.int8.finish import Columns, Finish, finish, pieces
from wmsched.relax.int8.geometry import Geometry, tiles_of
from wmsched.relax.int8.product import kernel

MAX_PIXELS = 4  # of a row that are computed at once


def depthwise_kernel(
    shape: Geometry, steps: Finish, dot: Dot, given: tuple[int, ...], result: tuple[int, ...]
) -> Any:
    """Return the function (data, weights, bias, factor, [shift], [residual], result).

    The arguments are those of `product_kernel`, with weights of `weights.packed_depthwise`.
    """
    columns = tiles_of(shape.channels) * TILE
    numbers = ((columns,), "float32")
    wanted = {
        "data": (given, "uint8"),
        "weights": ((shape.kernel[0] * shape.kernel[1] * columns,), "int32"),
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
        shape, flat = self.shape, self.flat
        columns, kind = tiles_of(shape.channels) * TILE, f"int32x{lanes}" if lanes > 1 else "int32"
        data_kind = f"uint8x{lanes}" if lanes > 1 else "uint8"
        zero = T.broadcast(T.int32(shape.zero), lanes) if lanes > 1 else T.int32(shape.zero)
        add = self._adder(lanes, kind)
        sums = flat["bias"].vload([channel], kind)
        for ky in range(shape.kernel[0]):
            y = top + ky * shape.dilation[0]
            for kx in range(shape.kernel[1]):
                column = x * shape.stride[1] - shape.padding[1] + kx * shape.dilation[1]
                weight = flat["weights"].vload([(ky * shape.kernel[1] + kx) * columns + channel], kind)
                if isinstance(x, int) and not 0 <= column < shape.width:
                    sums = add(sums, zero, weight)
                    continue
                place = ((image + y) * shape.width + column) * shape.channels + channel
                number = T.cast(flat["data"].vload([place], data_kind), kind)
                if checked:
                    number = T.if_then_else(T.And(y >= 0, y < shape.height), number, zero)
                sums = add(sums, number, weight)
        place = (line * shape.out_width + x) * shape.channels + channel
        finish(self.steps, self.columns, sums, lanes, channel, place)

    def _adder(self, lanes: int, kind: str) -> Callable[[Any, Any, Any], Any]:
        if lanes == self.dot.lanes:
            return lambda sums, data, weight: paired(self.dot, sums, data, weight)

        def add(sums: Any, data: Any, weight: Any) -> Any:  # the lower half of a weight's lane, with its sign
            sixteen = T.broadcast(T.int32(16), lanes) if lanes > 1 else T.int32(16)
            return sums + data * ((weight << sixteen) >> sixteen)

        return add
