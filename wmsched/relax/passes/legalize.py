"""Legalization of Relax operators whose TVM version is wrong or slow.

Works around apache-tvm 0.27; remove each function when TVM's gives the same result as fast.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.transform.legalize_ops import manipulate, nn, qdq
from tvm.relax.transform.legalize_ops.common import _try_convert_to_scalar_const as number_of
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from wmsched.relax.passes.wide_fusion import shape_of
from wmsched.toolchain.resolve import is_cpu

MIN_COPIED_TENSORS = 4  # fewer tensors are left to TVM, which fuses their concat with its readers
MIN_SERIAL_ROWS = 64  # of a concat's result; with fewer, the copies run in parallel


def taken(builder: Any, call: Any) -> Any:
    """Legalize ``relax.take`` with bounds: NaN for an index out of range, the nearest element for integers.

    TVM's reads out of bounds: a token beyond an embedding crashes the process or gives garbage.
    """
    data, indices = call.args
    mode = call.attrs.mode
    if mode == "fast":
        mode = "nan" if "float" in str(data.ty.dtype) else "clip"
    return builder.call_te(topi.take, data, indices, call.attrs.axis, mode=mode)


def pooled(stock: Any, whole: Any) -> Any:
    """Return a legalization of a pooling operator whose window may be larger than the image.

    TVM pads the image to the window and reads all of it: a window of 1280 by 1280 over 7 by 7, which
    transformers' EfficientNet has, takes 30,000 times as long as the 49 numbers do. Such a window sees the
    whole image, which `whole` reduces. Windows with padding, dilation or a further step stay TVM's.

    Parameters
    ----------
    stock : callable (builder, call)
        TVM's legalization.
    whole : callable (tensor, axes, keepdims)
        topi's reduction.
    """

    def legalize(builder: Any, call: Any) -> Any:
        (data,), attrs = call.args, call.attrs
        shape = shape_of(data)
        axes = [k for k, axis in enumerate(str(attrs.layout)) if axis in "DHW"]
        sizes = [int(size) for size in attrs.pool_size]
        plain = not any(map(int, attrs.padding)) and all(int(step) == 1 for step in attrs.dilation)
        if shape is None or len(shape) != len(str(attrs.layout)) or not plain:
            return stock(builder, call)
        if not all(size >= shape[k] for size, k in zip(sizes, axes)):
            return stock(builder, call)
        if all(size == shape[k] for size, k in zip(sizes, axes)):
            return stock(builder, call)  # no padding: its function is known to searches
        return builder.call_te(whole, data, axes, keepdims=True)

    return legalize


def quantized(builder: Any, call: Any) -> Any:
    """Legalize ``relax.quantize`` to integers with ties to even, as ONNX defines it.

    TVM rounds ties away from zero. Other output types are left to TVM.
    """
    axis, dtype = int(call.attrs.axis), str(call.attrs.out_dtype)
    if "int" not in dtype:
        return qdq._quantize(builder, call)

    def quantize(data: Any, scale: Any, zero: Any) -> Any:
        def of(parameter: Any, place: Any) -> Any:
            if not isinstance(parameter, te.Tensor):
                return parameter
            if all(isinstance(extent, tirx.IntImm) and int(extent) == 1 for extent in parameter.shape):
                return parameter[(0,) * len(parameter.shape)]
            return parameter[place[axis]]

        def step(*place: Any) -> Any:
            whole = te.nearbyint(data[place] / of(scale, place)) + of(zero, place)
            return qdq.clip_cast(whole, dtype)

        return te.compute(data.shape, step, name="quantized")

    data, scale, zero = call.args
    return builder.call_te(quantize, data, number_of(scale), number_of(zero), primfunc_name_hint="quantize")


def concat_by_copy(builder: Any, call: Any) -> Any:
    """Legalize ``relax.concat`` of many tensors on a processor as one copy after another.

    TVM's tests for each element of the result which tensor it is from.
    """
    parts = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    target = tvm.target.Target.current(allow_none=True)
    known = all(shape_of(part) for part in parts)
    if len(parts) < MIN_COPIED_TENSORS or not known or target is None or not is_cpu(target):
        return manipulate._concat(builder, call)
    return concat_as_copies(builder, call)


def concat_as_copies(builder: Any, call: Any) -> Any:
    """Return ``relax.concat`` of tensors of known shapes as one copy after another."""
    parts = list(call.args[0].fields)
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    shapes = [shape_of(part) or () for part in parts]
    axis %= len(shapes[0])
    rows = math.prod(shapes[0][:axis])
    widths = [math.prod(shape[axis:]) for shape in shapes]

    def copies(sources: Any, targets: Any) -> Any:
        found = T.buffer_proxy(targets[0])
        outer, inner = (T.parallel, T.serial) if rows >= MIN_SERIAL_ROWS else (T.serial, T.parallel)
        with IRBuilder() as builder, outer(0, rows) as row:
            start = row * sum(widths)
            for source, width in zip(map(T.buffer_proxy, sources), widths):
                with inner(0, width) as place:
                    found[start + place] = source[row * width + place]
                start = start + width
        return builder.get()

    def join(*tensors: Any) -> Any:
        shape = [*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :]]
        return te.extern([shape], list(tensors), copies, dtype=[tensors[0].dtype], name="joined")

    return builder.call_te(join, *parts, primfunc_name_hint="concatenate")


def rectified(builder: Any, call: Any) -> Any:
    """Legalize ``relax.nn.relu`` so that NaN stays NaN; TVM's gives 0.

    The larger of two is the second where they do not compare, in TVM's code as in the processor's.
    """

    def relu(data: Any) -> Any:
        return te.compute(
            data.shape, lambda *at: tirx.Max(tirx.const(0, data.dtype), data(*at)), name="compute"
        )

    return builder.call_te(relu, call.args[0], primfunc_name_hint="relu")


def clipped(builder: Any, call: Any) -> Any:
    """Legalize ``relax.clip`` so that NaN stays NaN; TVM's gives a bound."""
    data, low, high = call.args

    def clip(tensor: Any) -> Any:
        bounds = [tirx.const(float(bound.value), tensor.dtype) for bound in (low, high)]
        return te.compute(
            tensor.shape,
            lambda *at: tirx.Min(bounds[1], tirx.Max(bounds[0], tensor(*at))),
            name="compute",
        )

    known = all(isinstance(getattr(bound, "value", None), (int, float)) for bound in (low, high))
    if not known or "float" not in str(data.ty.dtype):
        return builder.call_te(topi.clip, *call.args, primfunc_name_hint="tir_clip")
    return builder.call_te(clip, data, primfunc_name_hint="tir_clip")


def _mean(data: Any, axes: list[int], keepdims: bool) -> Any:
    count = math.prod(int(data.shape[k]) for k in axes)
    return topi.divide(topi.sum(data, axes, keepdims), tirx.const(count, data.dtype))


LEGAL = {
    "relax.clip": clipped,
    "relax.nn.relu": rectified,
    "relax.take": taken,
    "relax.quantize": quantized,
    "relax.concat": concat_by_copy,
    "relax.nn.avg_pool1d": pooled(nn._nn_avg_pool1d, _mean),
    "relax.nn.avg_pool2d": pooled(nn._nn_avg_pool2d, _mean),
    "relax.nn.avg_pool3d": pooled(nn._nn_avg_pool3d, _mean),
    "relax.nn.max_pool1d": pooled(nn._nn_max_pool1d, topi.max),
    "relax.nn.max_pool2d": pooled(nn._nn_max_pool2d, topi.max),
    "relax.nn.max_pool3d": pooled(nn._nn_max_pool3d, topi.max),
}
