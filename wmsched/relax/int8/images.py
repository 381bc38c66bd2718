"""Kernels of images in eight bits: their quantization, the largest of a window, and the mean."""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.finish import Columns, Finish, finish, pieces, rounded, span
from wmsched.relax.int8.geometry import Geometry
from wmsched.relax.int8.product import kernel, named

MAX_VECTOR = 64  # bytes
LANES = 16  # channels whose sums, or pixels whose numbers, are computed at once
MAX_PLANES = 16  # channels of an image that is quantized so


def largest_kernel(shape: Geometry, given: tuple[int, ...], result: tuple[int, ...]) -> Any:
    """Return the function (data, result) of a maximum over windows without dilation.

    A window that begins before the image or ends beyond it reads its edge pixels again instead.
    """

    def write(flat: dict[str, Any]) -> None:
        with T.parallel(0, result[0] * result[1]) as line:
            image = line // result[1] * shape.height
            top = line % result[1] * shape.stride[0] - shape.padding[0]
            with T.serial(0, result[2]) as x:
                left = x * shape.stride[1] - shape.padding[1]
                _largest(shape, flat, image, top, left, (line * result[2] + x) * shape.channels)

    return kernel("int8_max_pool", {"data": (given, "uint8"), "result": (result, "uint8")}, write)


def _largest(shape: Geometry, flat: dict[str, Any], image: Any, top: Any, left: Any, place: Any) -> None:
    def store(channel: Any, lanes: int) -> None:
        value = None
        for ky in range(shape.kernel[0]):
            y = T.max(T.min(top + ky, shape.height - 1), 0)
            for kx in range(shape.kernel[1]):
                x = T.max(T.min(left + kx, shape.width - 1), 0)
                start = ((image + y) * shape.width + x) * shape.channels + channel
                number = flat["data"].vload([start], f"uint8x{lanes}" if lanes > 1 else "uint8")
                value = number if value is None else T.max(value, number)
        T.buffer_store(flat["result"], value, [span(place + channel, lanes)])

    whole = shape.channels // MAX_VECTOR
    if whole:
        with T.serial(0, whole) as turn:
            store(turn * MAX_VECTOR, MAX_VECTOR)
    for start, lanes in pieces(shape.channels - whole * MAX_VECTOR, MAX_VECTOR):
        store(whole * MAX_VECTOR + start, lanes)


def mean_kernel(
    pixels: int, steps: Finish, given: tuple[int, ...], result: tuple[int, ...], constants: tuple[int, float]
) -> Any:
    """Return the function (data, result) of the mean of each channel.

    Parameters
    ----------
    constants : (int, float)
        What is added to a sum, and its factor.
    """
    batch, channels = given[0], given[-1]
    whole = channels // LANES
    turns, rest = max(whole, 1), pieces(channels - whole * LANES, LANES)

    def write(flat: dict[str, Any]) -> None:
        columns = Columns(_Everywhere(constants[1]), None, None, flat["result"])

        def mean(image: Any, channel: Any, lanes: int) -> None:
            _mean(pixels, steps, flat["data"], columns, constants[0], image, channel, lanes, channels)

        with T.parallel(0, batch * turns) as task:
            if whole:
                mean(task // turns, task % turns * LANES, LANES)
            if rest:
                with T.If(task % turns == turns - 1), T.Then():
                    for start, lanes in rest:
                        mean(task // turns, T.int32(whole * LANES + start), lanes)

    wanted = {"data": (given, "uint8"), "result": (result, "uint8" if steps.quantized else "float32")}
    return kernel("int8_mean", wanted, write)


def image_kernel(given: tuple[int, ...], scale: float, zero: int) -> Any:
    """Return the function (data, result) that quantizes float32 images and puts their channels last."""
    batch, channels, height, width = given

    def write(flat: dict[str, Any]) -> None:
        with T.parallel(0, batch * height) as line:
            planes = named("planes", T.alloc_buffer((channels * LANES,), "uint8"))

            def pixels(x: Any, lanes: int) -> None:
                for channel in range(channels):
                    place = ((line // height * channels + channel) * height + line % height) * width + x
                    value = flat["data"].vload([place], f"float32x{lanes}" if lanes > 1 else "float32")
                    number = rounded(value, scale, zero, lanes)
                    T.buffer_store(planes, number, [span(channel * LANES, lanes)])
                for k in range(lanes):
                    for channel in range(channels):
                        place = (line * width + x + k) * channels + channel
                        T.buffer_store(flat["result"], planes[channel * LANES + k], [place])

            whole = width // LANES
            if whole:
                with T.serial(0, whole) as turn:
                    pixels(turn * LANES, LANES)
            for start, lanes in pieces(width - whole * LANES, LANES):
                pixels(T.int32(whole * LANES + start), lanes)

    result = (batch, height, width, channels)
    wanted = {"data": (given, "float32"), "result": (result, "uint8")}
    return kernel("int8_quantize", wanted, write)


class _Everywhere:
    """Stand-in for a buffer that holds the same float32 everywhere."""

    def __init__(self, value: float) -> None:
        self.value = value

    def vload(self, begin: Any, dtype: str) -> Any:
        """Return the number as often as `dtype` has lanes."""
        lanes = int(dtype.partition("x")[2] or 1)
        return T.broadcast(T.float32(self.value), lanes) if lanes > 1 else T.float32(self.value)


def _mean(
    pixels: int,
    steps: Finish,
    data: Any,
    columns: Columns,
    offset: int,
    image: Any,
    channel: Any,
    lanes: int,
    channels: int,
) -> None:
    kind = f"int32x{lanes}" if lanes > 1 else "int32"
    begin = T.broadcast(T.int32(offset), lanes) if lanes > 1 else T.int32(offset)
    sums = named(f"sums_{lanes}", T.alloc_buffer((lanes,), "int32"))
    T.buffer_store(sums, begin, [span(0, lanes)])
    with T.serial(0, pixels) as pixel:
        place = (image * pixels + pixel) * channels + channel
        number = T.cast(data.vload([place], f"uint8x{lanes}" if lanes > 1 else "uint8"), kind)
        T.buffer_store(sums, sums.vload([0], kind) + number, [span(0, lanes)])
    finish(steps, columns, sums.vload([0], kind), lanes, channel, image * channels + channel)
