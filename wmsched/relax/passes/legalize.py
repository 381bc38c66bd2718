"""Legalization of Relax operators whose TVM version is wrong or slow.

Works around apache-tvm 0.27; remove each function when TVM's gives the same result as fast.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.transform.legalize_ops import manipulate, qdq
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
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    target = tvm.target.Target.current(allow_none=True)
    shapes = [shape_of(part) or () for part in parts]
    if len(parts) < MIN_COPIED_TENSORS or not all(shapes) or target is None or not is_cpu(target):
        return manipulate._concat(builder, call)
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


LEGAL = {"relax.take": taken, "relax.quantize": quantized, "relax.concat": concat_by_copy}
