"""Kernel of float32 depthwise convolutions with channels last: one schedule, by a rule.

Vectors run along the channels. A group of neighbouring pixels of a row has its sums in registers. Taps beyond
the image are left out, so nothing is padded.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import tirx as T

from wmsched.relax.choices.core import Core
from wmsched.relax.choices.epilogue import Epilogue
from wmsched.relax.int8.finish import pieces, span
from wmsched.relax.int8.geometry import Geometry
from wmsched.relax.int8.product import kernel, named
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["depthwise_kernel", "geometry_of"]

MAX_PIXELS = 8  # sums of a group: with fewer the latency of a multiply-add shows
SPARE = 6  # registers for what is not a sum
MAX_IDLE = 0.05  # share of the threads' time that an uneven split of the rows may leave
MAX_PARTS = 8  # of the channels, which divide a row's work among threads


def geometry_of(call: Any) -> Geometry:
    """Return the shapes of a convolution with channels last."""
    attrs, given, weights, result = call.attrs, *(shape_of(one) for one in (*call.args, call))
    assert given is not None and weights is not None and result is not None
    top, left, bottom, right = (int(size) for size in attrs.padding)
    return Geometry(
        batch=given[0],
        height=given[1],
        width=given[2],
        channels=given[3],
        outputs=result[3],
        kernel=(weights[0], weights[1]),
        stride=(int(attrs.strides[0]), int(attrs.strides[1])),
        padding=(top, left, bottom, right),
        dilation=(int(attrs.dilation[0]), int(attrs.dilation[1])),
    )


def depthwise_kernel(shape: Geometry, epilogue: Epilogue, core: Core) -> Any:
    """Return the function (data, weights, [operands], result); the weights are [high, wide, channels]."""
    given = (shape.batch, shape.height, shape.width, shape.channels)
    result = (shape.batch, shape.out_height, shape.out_width, shape.channels)
    wanted = {
        "data": (given, "float32"),
        "weights": ((shape.kernel[0] * shape.kernel[1] * shape.channels,), "float32"),
        **epilogue.wanted(result),
        "result": (result, "float32"),
    }
    size, operations = shape.words.partition(" convolution")[0], shape.operations / shape.channels
    what = ", ".join([f"{size} depthwise convolution to {' x '.join(map(str, result))}", *epilogue.words])
    return kernel(
        "depthwise", wanted, lambda flat: _Writer(shape, epilogue, core, flat).write(), what, operations
    )


@dataclass(frozen=True)
class Group:
    """Neighbouring pixels of a row: `turns` groups of `count`, the first from `start`.

    All of their taps lie within the rows of the image, or there is one turn.
    """

    start: int
    count: int
    turns: int = 1


def groups_of(shape: Geometry, most: int) -> list[Group]:
    """Return the groups of a row's pixels, each of at most so many."""
    width, stride, left = shape.out_width, shape.stride[1], shape.padding[1]
    reach = shape.dilation[1] * (shape.kernel[1] - 1)
    count = -(-width // -(-width // most))
    found: list[Group] = []
    for start in range(0, width, count):
        own = min(count, width - start)
        inside = start * stride >= left and (start + own - 1) * stride - left + reach < shape.width
        last = found[-1] if found else None
        if inside and own == count and last is not None and last.turns < 0:
            found[-1] = Group(last.start, count, last.turns - 1)
        else:
            found.append(Group(start, own, -1 if inside and own == count else 1))
    return [Group(one.start, one.count, abs(one.turns)) for one in found]


def parts_of(rows: int, vectors: int, threads: int) -> int:
    """Return into how many parts the channels of a row are divided, so that no thread waits long."""

    def idle(parts: int) -> float:
        tasks = rows * parts
        return 1 - tasks / (-(-tasks // threads) * threads)

    wanted = range(1, max(1, min(MAX_PARTS, vectors // 2)) + 1)
    return next((parts for parts in wanted if idle(parts) <= MAX_IDLE), min(wanted, key=idle))


class _Writer:
    """Writer of the loops over rows, groups of pixels, and vectors of channels."""

    def __init__(self, shape: Geometry, epilogue: Epilogue, core: Core, flat: dict[str, Any]) -> None:
        self.shape, self.epilogue, self.flat = shape, epilogue, flat
        self.lanes = core.registers.lanes
        self.groups = groups_of(shape, min(MAX_PIXELS, core.registers.number - SPARE))
        rows, vectors = shape.batch * shape.out_height, shape.channels // self.lanes
        self.parts = parts_of(rows, vectors, core.threads)

    def write(self) -> None:
        """Emit everything."""
        shape = self.shape
        with T.parallel(0, shape.batch * shape.out_height * self.parts) as task:
            line, part = task // self.parts, task % self.parts
            top = line % shape.out_height * shape.stride[0] - shape.padding[0]
            image = line // shape.out_height * shape.height
            for group in self.groups:
                if group.turns == 1:
                    self._channels(line, image, top, group.start, group.count, part)
                    continue
                with T.serial(0, group.turns) as turn:
                    self._channels(line, image, top, group.start + turn * group.count, group.count, part)

    def _channels(self, line: Any, image: Any, top: Any, x: Any, count: int, part: Any) -> None:
        lanes, channels = self.lanes, self.shape.channels
        whole = channels // lanes
        share = -(-whole // self.parts)

        def vectors(number: Any) -> None:
            with T.serial(0, number) as turn:
                self._sums(line, image, top, x, count, (part * share + turn) * lanes, lanes)

        if whole % self.parts == 0:
            vectors(share) if share else None
        else:
            vectors(T.min(whole - part * share, share))
        tail = pieces(channels - whole * lanes, lanes)
        if not tail:
            return
        with _when(part == self.parts - 1, self.parts > 1):
            for start, own in tail:
                self._sums(line, image, top, x, count, T.int32(whole * lanes + start), own)

    def _sums(self, line: Any, image: Any, top: Any, x: Any, count: int, channel: Any, lanes: int) -> None:
        """Emit the results of a group of pixels for some channels."""
        shape, kind = self.shape, f"float32x{lanes}" if lanes > 1 else "float32"
        sums = named(f"sums_{count}_{lanes}", T.alloc_buffer((count * lanes,), "float32"))
        zero = T.broadcast(T.float32(0), lanes) if lanes > 1 else T.float32(0)
        for k in range(count):
            T.buffer_store(sums, zero, [span(k * lanes, lanes)])
        high, wide = shape.kernel
        step = shape.dilation[0]
        first = T.max(0, (step - 1 - top) // step) if shape.padding[0] else 0
        last = T.min(high, (shape.height - 1 - top) // step + 1) if shape.padding[2] else high
        with T.serial(first, last) as ky:
            row = (image + top + ky * step) * shape.width
            for kx in range(wide):
                weight = self.flat["weights"].vload([(ky * wide + kx) * shape.channels + channel], kind)
                for k in range(count):
                    column = (x + k) * shape.stride[1] - shape.padding[1] + kx * shape.dilation[1]
                    if isinstance(x, int) and not 0 <= column < shape.width:
                        continue
                    number = self.flat["data"].vload([(row + column) * shape.channels + channel], kind)
                    total = sums.vload([k * lanes], kind) + number * weight
                    T.buffer_store(sums, total, [span(k * lanes, lanes)])
        for k in range(count):
            place = (line * shape.out_width + x + k) * shape.channels + channel
            self.epilogue.store(self.flat, sums.vload([k * lanes], kind), lanes, channel, place)


def _when(condition: Any, needed: bool) -> Any:
    """Return a scope that holds under a condition, or always."""
    if not needed:
        return nullcontext()
    stack = ExitStack()
    stack.enter_context(T.If(condition))
    stack.enter_context(T.Then())
    return stack
