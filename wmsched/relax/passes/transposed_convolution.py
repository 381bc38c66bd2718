"""Transposed convolutions with channels last: as convolutions, or between two transpositions.

Works around apache-tvm 0.27, whose `ConvertLayout` puts a transposed convolution's channels last, and whose
legalization knows them first only. Remove `channels_first` when TVM legalizes both.

TVM's program spreads the image out with zeros and multiplies them too: s^2 times the arithmetic for a stride
of s. With stride s, the pixels ``y[s q + r]`` of one phase r are a convolution of stride 1. All phases are
one convolution of s^2 times the channels, and a move of pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

from wmsched.relax.passes.wide_fusion import shape_of

#: Transposed convolutions, with the layouts that TVM can build, and the number of spatial dimensions.
FIRST = {"relax.nn.conv2d_transpose": "NCHW", "relax.nn.conv3d_transpose": "NCDHW"}
PLANAR = "relax.nn.conv2d_transpose"


@dataclass(frozen=True)
class Phases:
    """A transposed convolution along one axis, as phases of a convolution of stride 1.

    ``y[s q + r] = sum_t x[i] w[t]`` with ``i s + t - padding = s q + r``: the pixel i is q plus one of `taps`
    places that begin at `first`.

    Parameters
    ----------
    stride, kernel, padding : int
        Of the transposed convolution; `padding` is what it leaves out before the result.
    """

    stride: int
    kernel: int
    padding: int

    def _of(self, phase: int) -> list[tuple[int, int]]:
        """Return the taps of a phase: the place relative to q, and the weight's index."""
        skipped, start = divmod(phase + self.padding, self.stride)
        return [(skipped - j, t) for j, t in enumerate(range(start, self.kernel, self.stride))]

    @property
    def places(self) -> list[list[tuple[int, int]]]:
        """Return the taps of every phase."""
        return [self._of(phase) for phase in range(self.stride)]

    @property
    def first(self) -> int:
        """Return the first place that any phase reads."""
        return min((place for taps in self.places for place, _ in taps), default=0)

    @property
    def taps(self) -> int:
        """Return the number of places, from the first to the last that any phase reads."""
        return max((place for taps in self.places for place, _ in taps), default=0) - self.first + 1


def buildable(module: Any) -> Any:
    """Return a module whose transposed convolutions TVM can build, with channels last around them.

    A two-dimensional one of one group, constant weights and no dilation becomes a convolution; another keeps
    its channels first between two transpositions.
    """
    found = module.clone()
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            for name in FIRST:
                function = rewrite_call(is_op(name)(wildcard(), wildcard()), _changed, function)
            found.update_func(variable, function)
    return relax.transform.Normalize()(found)


def _changed(call: Any, _: Any) -> Any:
    wanted = FIRST[str(call.op.name)]
    if str(call.attrs.data_layout) == wanted:
        return call
    made = _as_convolution(call)
    return channels_first(call, wanted) if made is None else made


def channels_first(call: Any, wanted: str) -> Any:
    """Return a transposed convolution with its own operands channels first, and the result as it was."""
    attrs, layout = call.attrs, str(call.attrs.data_layout)
    there = [layout.index(axis) for axis in wanted]
    operator = relax.op.nn.conv2d_transpose if len(wanted) == 4 else relax.op.nn.conv3d_transpose
    made = operator(
        relax.op.permute_dims(call.args[0], there),
        call.args[1],
        strides=[int(step) for step in attrs.strides],
        padding=[int(size) for size in attrs.padding],
        output_padding=[int(size) for size in attrs.output_padding],
        dilation=[int(step) for step in attrs.dilation],
        groups=int(attrs.groups),
        data_layout=wanted,
        kernel_layout=str(attrs.kernel_layout),
        out_dtype=str(call.ty.dtype),
    )
    return relax.op.permute_dims(made, [wanted.index(axis) for axis in str(attrs.out_layout)])


def _as_convolution(call: Any) -> Any:
    """Return a convolution of stride 1 and the move of its pixels; None where the call is of another kind."""
    attrs, weight = call.attrs, call.args[1]
    data, result = shape_of(call.args[0]), shape_of(call)
    plain = (
        str(call.op.name) == PLANAR
        and str(attrs.data_layout) == str(attrs.out_layout) == "NHWC"
        and str(attrs.kernel_layout) == "IOHW"
        and int(attrs.groups) == 1
        and all(int(step) == 1 for step in attrs.dilation)
    )
    constant = isinstance(weight, tvm.ir.Constant) and isinstance(weight.value, tvm.runtime.Tensor)
    if not plain or not constant or data is None or result is None:
        return None
    kernel, strides = weight.value.numpy(), [int(step) for step in attrs.strides]
    ways = [
        Phases(step, size, int(before))
        for step, size, before in zip(strides, kernel.shape[2:], attrs.padding, strict=False)
    ]
    packed = phase_weights(kernel, ways)
    counts = [-(-extent // step) for extent, step in zip(result[1:3], strides)]  # of q
    befores = [-way.first for way in ways]
    afters = [
        count - 1 + way.first + way.taps - 1 - (extent - 1)
        for count, way, extent in zip(counts, ways, data[1:3])
    ]
    image = call.args[0]
    if min(*befores, *afters) < 0:  # the first or last pixels reach nothing that is kept
        begins = [max(-before, 0) for before in befores]
        ends = [extent + min(after, 0) for extent, after in zip(data[1:3], afters)]
        if any(begin >= end for begin, end in zip(begins, ends)):
            return None
        image = relax.op.strided_slice(image, [1, 2], begins, ends)
    padding = [max(size, 0) for size in (*befores, *afters)]  # top, left, bottom, right
    channels = kernel.shape[1]
    made = relax.op.nn.conv2d(
        image,
        relax.const(packed),
        padding=padding,
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype=str(call.ty.dtype),
    )
    apart = relax.op.reshape(made, [data[0], *counts, *strides, channels])
    moved = relax.op.permute_dims(apart, [0, 1, 3, 2, 4, 5])
    whole = [count * step for count, step in zip(counts, strides)]
    found = relax.op.reshape(moved, [data[0], *whole, channels])
    if tuple(whole) != tuple(result[1:3]):
        found = relax.op.strided_slice(found, [1, 2], [0, 0], list(result[1:3]))
    return found


def phase_weights(kernel: np.ndarray, ways: list[Phases]) -> np.ndarray:
    """Return the weights ``[taps_h, taps_w, I, s_h * s_w * O]`` of all phases, from ``[I, O, k_h, k_w]``."""
    inputs, outputs = kernel.shape[:2]
    high, wide = ways
    packed = np.zeros((high.taps, wide.taps, inputs, high.stride, wide.stride, outputs), kernel.dtype)
    for r, rows in enumerate(high.places):
        for c, columns in enumerate(wide.places):
            for row, t in rows:
                for column, u in columns:
                    packed[row - high.first, column - wide.first, :, r, c] = kernel[:, :, t, u]
    return np.ascontiguousarray(packed.reshape(high.taps, wide.taps, inputs, -1))
