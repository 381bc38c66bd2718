"""Constant folding by numpy, before TVM's.

TVM's `FoldConstant` compiles and runs an unscheduled program for each operator and shape of constants. The
batch normalization and layouts of MobileNetV2's weights take 14 s of a build. The layout rewrite of weights
(`fold_relayout`) takes as long, in every build.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
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
ALONE = "alone"  # function of one call
#: Operators that have a tensor for its shape, and the number that they fill another with; None: it is given.
LIKE = {"relax.full_like": None, "relax.ones_like": 1, "relax.zeros_like": 0}
SLICE = "relax.strided_slice"
#: Operators that place elements, or numbers that they are given.
PLACING = (
    SLICE,
    "relax.arange",
    "relax.broadcast_to",
    "relax.full",
    "relax.gather_elements",
    "relax.take",
    "relax.where",
)
FLOAT_TYPES = ("float32", "float64")
WHOLE_TYPES = ("int8", "uint8", "int16", "int32", "int64")
MOVABLE_TYPES = (*FLOAT_TYPES, "float16", *WHOLE_TYPES, "bool")
#: Operators of whole numbers and truths, of which masks and positions are computed.
WHOLE: dict[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.bitwise_and": np.bitwise_and,
    "relax.bitwise_or": np.bitwise_or,
    "relax.equal": np.equal,
    "relax.not_equal": np.not_equal,
    "relax.less": np.less,
    "relax.less_equal": np.less_equal,
    "relax.greater": np.greater,
    "relax.greater_equal": np.greater_equal,
    "relax.logical_and": np.logical_and,
    "relax.logical_or": np.logical_or,
    "relax.logical_not": np.logical_not,
}
MAX_MADE = 1 << 24  # elements that an operator makes of fewer


def fold(module: Any, *, whole: bool = False) -> Any:
    """Return a Relax module with operators of constants folded, where numpy gives TVM's exact result.

    These are float32 and float64 arithmetic, whole numbers and truths of which masks and positions are
    computed, and moves of elements, also by TensorIR functions of one input.

    Parameters
    ----------
    whole : bool
        Whether TVM folds the rest, operator by operator: its `FoldConstant` of a module writes a TensorIR
        program of every operator in it, of constants or not, which takes seconds of a transformer.
    """
    found = module.clone()
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            found.update_func(variable, _Fold(module, whole).visit_expr(function))
    return found


def folding(*, whole: bool = False) -> Any:
    """Return `fold` as a pass."""

    @tvm.transform.module_pass(opt_level=0, name="FoldByNumpy")
    def fold_by_numpy(module: Any, _: Any) -> Any:
        return fold(module, whole=whole)

    return fold_by_numpy


@mutator
class _Fold(PyExprMutator):
    """Mutator that folds the operators of a function in their order."""

    def __init__(self, module: Any, whole: bool = False) -> None:
        super().__init__(module)
        self.programs, self.whole = module, whole

    def visit_call_(self, call: Any) -> Any:
        shape, kind = shape_of(call), call.ty  # the new call has no type yet
        call = self.visit_expr_post_order(call)
        if shape is None or not isinstance(call.op, tvm.ir.Op):
            return call
        dtype = str(kind.dtype)
        if (name := str(call.op.name)) in LIKE:
            filled = call.args[1] if LIKE[name] is None else relax.const(LIKE[name], dtype)
            call = relax.op.full(shape, filled, dtype)
        found = self._by_numpy(call, shape, dtype)
        if found is None and self.whole:
            found = self._by_tvm(call)
        return call if found is None else found

    def _by_numpy(self, call: Any, shape: Sequence[int], dtype: str) -> Any:
        """Return what a call of constants computes; None to leave it to TVM."""
        given = call.args
        if str(call.op.name) == CALL_TIR:
            given = call.args[1].fields if isinstance(call.args[1], relax.Tuple) else call.args[1:2]
        elif str(call.op.name) == SLICE:
            given = call.args[:1]  # the others are numbers
        constants = [self._constant(one) for one in given if not isinstance(one, relax.ShapeExpr)]
        if any(constant is None for constant in constants):
            return None
        compute = self._numpy_of(call, dtype)
        if compute is None:
            return None
        with np.errstate(all="ignore"):
            made = compute(*map(array_of, constants))
        if made is None:
            return None
        result = np.ascontiguousarray(made)
        if str(result.dtype) != dtype or result.size != np.prod(shape, dtype=int):
            return None
        return relax.const(result.reshape(shape), dtype)

    def _by_tvm(self, call: Any) -> Any:
        """Return the constant that TVM folds a call of constants to; None where it folds nothing."""
        given = [self._settled(one) for one in call.args]
        if any(one is None for one in given):
            return None
        program = call.args[0] if str(call.op.name) == CALL_TIR else None
        small = relax.BlockBuilder(tvm.IRModule({} if program is None else {program: self.programs[program]}))
        with small.function(ALONE, []):
            with small.dataflow():
                found = small.emit_output(small.emit(relax.Call(call.op, given, call.attrs, call.ty_args)))
            small.emit_func_output(found)
        body = relax.transform.FoldConstant()(small.get())[ALONE].body
        result = body.body if isinstance(body, relax.SeqExpr) else body
        return result if isinstance(result, tvm.ir.Constant) else None

    def _settled(self, expression: Any) -> Any:
        """Return an operand with no variable in it; None if it hangs on what is no constant."""
        if isinstance(expression, relax.Var):
            expression = self.lookup_binding(expression)
        if isinstance(expression, relax.Tuple):
            fields = [self._settled(one) for one in expression.fields]
            return None if any(one is None for one in fields) else relax.Tuple(fields)
        if isinstance(expression, (relax.Call, relax.Var, relax.TupleGetItem)):
            return None
        return expression

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
        kinds = {str(getattr(one.ty, "dtype", "")) for one in call.args}
        if name in WHOLE and kinds <= {*WHOLE_TYPES, "bool"} and len(kinds) == 1:
            return WHOLE[name]
        if name == "relax.astype" and kinds <= {*WHOLE_TYPES, "bool"} and dtype in WHOLE_TYPES:
            return lambda data: data.astype(dtype)
        if name in PLACING:
            return _placing(call, dtype)
        if name in RESHAPES:
            return np.asarray
        if name == PERMUTE:
            axes = call.attrs.axes
            order = None if axes is None else [int(axis) for axis in axes]
            return lambda data: np.transpose(data, order)
        return relayout(self.programs[call.args[0]]) if name == CALL_TIR else None


def _placing(call: Any, dtype: str) -> Callable[..., Any] | None:
    """Return the numpy function of an operator that places elements; it returns None to leave them to TVM."""
    shape = tuple(shape_of(call) or ())
    name = str(call.op.name)
    if math.prod(shape) > MAX_MADE:
        return None
    if name == "relax.full":
        return lambda value: np.full(shape, value, dtype)
    if name == "relax.broadcast_to":
        return lambda data: np.broadcast_to(data, shape)
    if name == "relax.where":
        return np.where
    if name == "relax.arange":
        if dtype not in WHOLE_TYPES:
            return None
        return lambda start, _, step: (start + step * np.arange(*shape)).astype(dtype)
    if name == SLICE:
        return _slice(call)
    if call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis)

    def taken(data: np.ndarray, places: np.ndarray) -> np.ndarray | None:
        if not places.size or places.min() < 0 or places.max() >= data.shape[axis]:
            return None
        if name == "relax.take":
            return np.take(data, places, axis)
        beside = [(a, b) for k, (a, b) in enumerate(zip(data.shape, places.shape)) if k != axis % data.ndim]
        return np.take_along_axis(data, places, axis) if all(a == b for a, b in beside) else None

    return taken


def _slice(call: Any) -> Callable[..., Any] | None:
    """Return the numpy function of a slice that goes forward from a place in its tensor."""
    places = []
    for given in call.args[1:]:
        fields: list[Any] = list(given.fields) if isinstance(given, relax.Tuple) else [given]
        if not all(isinstance(one, tvm.tirx.IntImm) for one in fields):
            return None
        places.append([int(one.value) for one in fields])
    axes, begins, ends, *more = places
    steps = more[0] if more else [1] * len(axes)
    if min([*axes, *begins, *ends], default=0) < 0 or min(steps, default=1) < 1:
        return None
    cuts = {axis: slice(*cut) for axis, *cut in zip(axes, begins, ends, steps)}
    return lambda data: data[tuple(cuts.get(k, slice(None)) for k in range(data.ndim))]


def array_of(constant: Any) -> NDArray[Any]:
    """Return a constant's elements, read-only: those of a tensor are not copied."""
    if not isinstance(constant.value, tvm.runtime.Tensor):
        return np.asarray(constant.value, str(constant.ty.dtype))
    try:
        return np.from_dlpack(constant.value)
    except (BufferError, RuntimeError, TypeError):  # numpy has no such type, or it is not on a processor
        return constant.value.numpy()
