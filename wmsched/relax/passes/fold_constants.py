"""What a model computes of its weights alone, computed by numpy before TVM would.

TVM's `FoldConstant` compiles a program for each such operator and shape, without schedules, and runs it: the
weights of MobileNetV2, whose batch normalisation and transposed layouts are such, take it 14 s of a build.
So does the laying out of weights that schedules ask for (`relax_relayout`), in every build.
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

#: What numpy computes to the last bit as TVM's programs do.
EXACT: dict[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.negative": np.negative,
    "relax.sqrt": np.sqrt,
}
#: What changes a tensor's shape alone.
SHAPED = ("relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze")
PERMUTED = "relax.permute_dims"
PROGRAM = "relax.call_tir"
FLOATS = ("float32", "float64")
MOVED = (*FLOATS, "float16", "int8", "uint8", "int16", "int32", "int64", "bool")


def fold(module: Any) -> Any:
    """A Relax module in which operators of constants are constants, as far as numpy does as TVM would.

    That is arithmetic in float32 and float64, and the moving about of elements, by programs of one input
    too. The rest is left for `relax.transform.FoldConstant`.
    """
    found = module.clone()
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            found.update_func(variable, _Fold(module).visit_expr(function))
    return found


def folding() -> Any:
    """`fold` as a pass."""

    @tvm.transform.module_pass(opt_level=0, name="FoldByNumpy")
    def fold_by_numpy(module: Any, _: Any) -> Any:
        return fold(module)

    return fold_by_numpy


@mutator
class _Fold(PyExprMutator):
    """Goes through the operators of a function of the module, in their order."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.programs = module

    def visit_call_(self, call: Any) -> Any:
        shape, kind = shape_of(call), call.ty  # the new call has none yet
        call = self.visit_expr_post_order(call)
        if shape is None or not isinstance(call.op, tvm.ir.Op):
            return call
        given = call.args
        if str(call.op.name) == PROGRAM:
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
        """The constant that an operand is; None where it is none."""
        if isinstance(expression, relax.Var):
            expression = self.lookup_binding(expression)
        if isinstance(expression, (tvm.tirx.FloatImm, tvm.tirx.IntImm)):
            return expression
        tensor = isinstance(expression, tvm.ir.Constant) and isinstance(expression.value, tvm.runtime.Tensor)
        return expression if tensor else None

    def _numpy_of(self, call: Any, dtype: str) -> Callable[..., Any] | None:
        """What computes a call of constants; None where that is left to TVM."""
        name = str(call.op.name)
        if name in EXACT and dtype in FLOATS:
            return EXACT[name]
        if dtype not in MOVED:
            return None
        if name in SHAPED:
            return np.asarray
        if name == PERMUTED:
            axes = call.attrs.axes
            order = None if axes is None else [int(axis) for axis in axes]
            return lambda data: np.transpose(data, order)
        return relayout(self.programs[call.args[0]]) if name == PROGRAM else None


def _numbers(constant: Any) -> np.ndarray:
    if isinstance(constant.value, tvm.runtime.Tensor):
        return constant.value.numpy()
    return np.asarray(constant.value, str(constant.ty.dtype))
