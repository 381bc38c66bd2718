"""The 22 representatives in TensorIR, with the shapes of `benchmarks.suites`. Needs MetaSchedule's
TVM.

The computations of AutoScheduler's tasks: batch normalisation as a bias, channels last, a function each.
"""

from __future__ import annotations

from typing import Any

from tvm import IRModule, te, tirx, topi

from benchmarks import suites
from benchmarks.suites import Representative, Shape
from wmsched.base.errors import UnknownName

Tensor = Any  # te.Tensor: the wheel ships no type stubs


def module(kind: str) -> IRModule:
    """The representative of a type such as "conv2d-relu" as a module with the function `main`.

    Raises
    ------
    UnknownName
        No representative has this type.
    ValueError
        The output does not have the shape that the suite says.
    """
    entry = suites.BY_TYPE.get(kind)
    if entry is None:
        raise UnknownName(f"no representative is called {kind!r}; there are {', '.join(suites.BY_TYPE)}")
    arguments = [te.placeholder(shape, name=f"p{i}") for i, shape in enumerate(entry.shapes[:-1])]
    out = compute(entry, arguments)
    shape = tuple(int(extent) for extent in out.shape)
    if shape != entry.shapes[-1]:
        raise ValueError(f"{kind}: the output is {shape}, the suite says {entry.shapes[-1]}")
    return IRModule({"main": te.create_prim_func([*arguments, out])})


def compute(entry: Representative, inputs: list[Tensor]) -> Tensor:
    """The representative's output from its inputs, by the operators that Relay fused (`entry.ops`)."""
    first, *rest = entry.ops.split("_add")
    if first in ("conv2d", "conv3d"):
        return _convolution(entry, inputs, relu=entry.ops.endswith("relu"), clip=entry.ops.endswith("clip"))
    if entry.ops == "dense_add_multiply_multiply_erf_add_multiply":
        x = topi.add(topi.nn.dense(inputs[0], inputs[1]), inputs[2])
        half, root = tirx.const(0.5, "float32"), tirx.const(0.5**0.5, "float32")
        erf = topi.add(topi.erf(topi.multiply(x, root)), tirx.const(1.0, "float32"))
        return topi.multiply(topi.multiply(x, half), erf)
    if first in ("dense", "batch_matmul"):
        x = getattr(topi.nn, first)(inputs[0], inputs[1])
        return topi.add(x, inputs[2]) if rest else x
    if entry.ops == "variance":
        squares = topi.multiply(gap := topi.subtract(inputs[0], inputs[1]), gap)
        return _mean(squares)
    if entry.ops == "mean":
        return _mean(inputs[0])
    if entry.ops == "softmax":
        return topi.nn.softmax(inputs[0])
    if entry.ops == "adaptive_avg_pool2d":
        return topi.nn.adaptive_pool(inputs[0], entry.shapes[-1][1:3], "avg", layout="NHWC")
    if entry.ops == "max_pool2d":
        return topi.nn.pool2d(inputs[0], (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max", layout="NHWC")
    raise UnknownName(f"{entry.type}: no TensorIR is written for {entry.ops!r}")


def _convolution(entry: Representative, inputs: list[Tensor], *, relu: bool, clip: bool) -> Tensor:
    """Convolution, bias, the residual addition if there is one, and the activation."""
    found = suites.convolution(entry)
    convolve = topi.nn.conv3d_ndhwc if len(found.stride) == 3 else topi.nn.conv2d_nhwc
    if found.depthwise:
        convolve = topi.nn.depthwise_conv2d_nhwc
    more = (1, 1) if len(found.stride) == 3 else (1,)  # dilation, and of a conv3d its groups
    y = convolve(inputs[found.data], inputs[found.weight], found.stride, found.padding, *more)
    y = topi.add(y, inputs[found.bias])
    for place in found.residual:
        y = topi.add(y, inputs[place])
    if clip:
        return topi.clip(y, 0.0, 6.0)
    return topi.nn.relu(y) if relu else y


def _mean(x: Tensor) -> Tensor:
    total = topi.sum(x, axis=-1, keepdims=True)
    return topi.divide(total, tirx.const(float(_shape(x)[-1]), "float32"))


def _shape(x: Tensor) -> Shape:
    return tuple(int(extent) for extent in x.shape)
