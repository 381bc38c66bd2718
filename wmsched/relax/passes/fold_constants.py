"""Constant folding by numpy, before TVM's.

TVM's `FoldConstant` compiles and runs an unscheduled program for each operator and shape of constants. The
batch normalization and layouts of MobileNetV2's weights take 14 s of a build. The layout rewrite of weights
(`fold_relayout`) takes as long, in every build.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from wmsched.relax.passes.fold_relayout import relayout
from wmsched.relax.passes.wide_fusion import shape_of

#: Operators that numpy and TVM compute to the same bits.
EXACT: dict[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.negative": np.negative,
    "relax.sqrt": np.sqrt,
}
#: Operators that change only a tensor's shape.
RESHAPES = ("relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze")
PERMUTE = "relax.permute_dims"
CALL_TIR = "relax.call_tir"
FLOAT_TYPES = ("float32", "float64")
MOVABLE_TYPES = (*FLOAT_TYPES, "float16", "int8", "uint8", "int16", "int32", "int64", "bool")


def fold(module: Any) -> Any:
    """Return a Relax module with operators of constants folded, where numpy gives TVM's exact result.

    These are float32 and float64 arithmetic and moves of elements, also by TensorIR functions of one input.
    `relax.transform.FoldConstant` does the rest.
    """
    found = module.clone()
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            found.update_func(variable, _Fold(module).visit_expr(function))
    return found


def folding() -> Any:
    """Return `fold` as a pass."""

    @tvm.transform.module_pass(opt_level=0, name="FoldByNumpy")
    def fold_by_numpy(module: Any, _: Any) -> Any:
        return fold(module)

    return fold_by_numpy


@mutator
class _Fold(PyExprMutator):
    """Mutator that folds the operators of a function in their order."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.programs = module

    def visit_call_(self, call: Any) -> Any:
        shape, kind = shape_of(call), call.ty  # the new call has no type yet
        call = self.visit_expr_post_order(call)
        if shape is None or not isinstance(call.op, tvm.ir.Op):
            return call
        given = call.args
        if str(call.op.name) == CALL_TIR:
            given = call.args[1].fields if isinstance(call.args[1], relax.Tuple) else call.args[1:2]
        constants = [self._constant(one) for one in given if not isinstance(one, relax.ShapeExpr)]
        if any(constant is None for constant in constants):
            return call
        compute = self._numpy_of(call, str(kind.dtype))
        if compute is None:
            return call
        with np.errstate(all="ignore"):
            result = np.ascontiguousarray(compute(*map(_numbers, constants)))
        if str(result.dtype) != str(kind.dtype) or result.size != np.prod(shape, dtype=int):
            return call
        return relax.const(result.reshape(shape), str(kind.dtype))

    def _constant(self, expression: Any) -> Any:
        """Return an operand's constant; None if it has none."""
        if isinstance(expression, relax.Var):
            expression = self.lookup_binding(expression)
        if isinstance(expression, (tvm.tirx.FloatImm, tvm.tirx.IntImm)):
            return expression
        tensor = isinstance(expression, tvm.ir.Constant) and isinstance(expression.value, tvm.runtime.Tensor)
        return expression if tensor else None

    def _numpy_of(self, call: Any, dtype: str) -> Callable[..., Any] | None:
        """Return the numpy function of a call of constants; None to leave it to TVM."""
        name = str(call.op.name)
        if name in EXACT and dtype in FLOAT_TYPES:
            return EXACT[name]
        if dtype not in MOVABLE_TYPES:
            return None
        if name in RESHAPES:
            return np.asarray
        if name == PERMUTE:
            axes = call.attrs.axes
            order = None if axes is None else [int(axis) for axis in axes]
            return lambda data: np.transpose(data, order)
        return relayout(self.programs[call.args[0]]) if name == CALL_TIR else None


def _numbers(constant: Any) -> np.ndarray:
    if isinstance(constant.value, tvm.runtime.Tensor):
        return constant.value.numpy()
    return np.asarray(constant.value, str(constant.ty.dtype))
