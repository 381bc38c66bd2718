"""Constants of a Relax function, and small computations of them, as numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from wmsched.relax.passes.wide_fusion import shape_of


class Constants:
    """Values that a function's operands have at build time.

    Parameters
    ----------
    values : mapping of Var to expression
        What each variable is bound to.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self._values = values

    def of(self, operand: Any) -> Any:
        """Return an operand's array; None if it is no constant, nor moved or dequantized from one."""
        while isinstance(operand, relax.Var):
            if operand not in self._values:
                return None
            operand = self._values[operand]
        if isinstance(operand, tvm.ir.Constant):
            return operand.value.numpy() if isinstance(operand.value, tvm.runtime.Tensor) else None
        if isinstance(operand, (tvm.tirx.FloatImm, tvm.tirx.IntImm)):
            return np.asarray(operand.value)
        name = operator(operand)
        if name not in ("relax.dequantize", "relax.reshape", "relax.permute_dims", "relax.expand_dims"):
            return None
        data = self.of(operand.args[0])
        if data is None:
            return None
        if name == "relax.dequantize":
            return self._real(operand, data)
        if name == "relax.permute_dims":
            axes = operand.attrs.axes
            return np.transpose(data, None if axes is None else [int(axis) for axis in axes])
        shape = shape_of(operand)
        return None if shape is None else data.reshape(shape)

    def number(self, operand: Any) -> float | None:
        """Return the number of a constant of one element; None for anything else."""
        value = self.of(operand)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def _real(self, call: Any, data: Any) -> Any:
        scale, zero = self.of(call.args[1]), self.of(call.args[2])
        if scale is None or zero is None:
            return None
        axis = int(call.attrs.axis) % max(data.ndim, 1)
        scale, zero = (_along(each, axis, data.ndim) for each in (scale, zero))
        return (data.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale.astype(np.float32)

    def weight(self, operand: Any) -> tuple[Any, Any] | None:
        """Return int8 weights [outputs, ...] and scales [outputs] of a dequantized constant.

        Axis 0 is the outputs'. None if the operand is none, or has zero points that no shift by 128 removes.
        """
        transposed = False
        while isinstance(operand, relax.Var) and operand in self._values:
            operand = self._values[operand]
        if operator(operand) == "relax.permute_dims" and operand.attrs.axes is not None:
            if [int(axis) for axis in operand.attrs.axes] != [1, 0]:
                return None
            transposed, operand = True, operand.args[0]
            while isinstance(operand, relax.Var) and operand in self._values:
                operand = self._values[operand]
        if operator(operand) != "relax.dequantize":
            return None
        data, scale, zero = (self.of(each) for each in operand.args)
        if data is None or scale is None or zero is None or str(data.dtype) not in ("int8", "uint8"):
            return None
        shift = 128 if str(data.dtype) == "uint8" else 0
        if (zero.astype(np.int64) != shift).any():
            return None
        axis = int(operand.attrs.axis) % data.ndim
        numbers = (data.astype(np.int16) - shift).astype(np.int8)
        outputs = 0 if transposed or data.ndim > 2 else data.ndim - 1
        if scale.size > 1 and axis != outputs:
            return None
        if data.ndim == 2 and not transposed:
            numbers = np.ascontiguousarray(numbers.T)
        scales = np.broadcast_to(scale.reshape(-1).astype(np.float64), (numbers.shape[0],))
        return numbers, scales


def _along(values: Any, axis: int, rank: int) -> Any:
    if values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if k == axis else 1 for k in range(rank)])


def operator(expression: Any) -> str:
    """Return the name of a call's operator; "" for anything else."""
    if not isinstance(expression, relax.Call) or not isinstance(expression.op, tvm.ir.Op):
        return ""
    return str(expression.op.name)
