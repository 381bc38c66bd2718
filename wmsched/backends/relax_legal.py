"""Operators of Relax as programs, where TVM's own program of one computes something else than models mean."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx, topi
from tvm.relax.transform.legalize_ops import qdq
from tvm.relax.transform.legalize_ops.common import _try_convert_to_scalar_const as number_of


def taken(builder: Any, call: Any) -> Any:
    """``relax.take`` that stays inside: NaN for an index out of range, of whole numbers the nearest.

    As TVM makes it, it reads what lies there: a token beyond an embedding ends the process, or is a word.
    """
    data, indices = call.args
    mode = call.attrs.mode
    if mode == "fast":
        mode = "nan" if "float" in str(data.ty.dtype) else "clip"
    return builder.call_te(topi.take, data, indices, call.attrs.axis, mode=mode)


def quantized(builder: Any, call: Any) -> Any:
    """``relax.quantize`` that rounds a number amid two steps to the even one, as ONNX says.

    TVM rounds it away from zero. Types that are no whole numbers are not rounded so, and are left to TVM.
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


LEGAL = {"relax.take": taken, "relax.quantize": quantized}
