"""What stands in the way of TVM's fusion of a product with what follows it, moved or computed beforehand.

PyTorch exports a dense layer of a transformer as a reshape to two dimensions, a product, its bias, and a
reshape back. TVM fuses a product with what is computed of its elements up to the first reshape: a ReLU, the
residual's sum and a mask's would be functions of their own, which read and write the whole tensor again.
And a mask of constants is computed anew in every layer, since TVM does not know a filled tensor as constant.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

logger = logging.getLogger("wmsched")

RESHAPE, PRODUCT = "relax.reshape", "relax.matmul"
#: A few instructions for each element. GELU and its like stay apart: in a product's loops they were slower
#: than beside them in each of three searches (GPT-2's twice, 5.3 and 5.5 ms in place of 5.0; BERT's).
UNARY = frozenset(
    f"relax.{name}" for name in ("abs", "negative", "square", "nn.leakyrelu", "nn.relu", "nn.relu6")
)
BINARY = frozenset(
    f"relax.{name}" for name in ("add", "divide", "maximum", "minimum", "multiply", "subtract")
)

#: What MetaSchedule puts into the loops of what reads it: of other operators it would be a nest of loops
#: beside the product, for which it has no schedules.
INLINED = UNARY | BINARY | frozenset(
    f"relax.{name}"
    for name in (
        "astype", "broadcast_to", "cos", "erf", "exp", "expand_dims", "log", "nn.gelu", "nn.gelu_tanh",
        "nn.silu", "permute_dims", "power", "reshape", "rsqrt", "sigmoid", "sin", "sqrt", "squeeze",
        "strided_slice", "tanh",
    )
)  # fmt: skip
#: Functions of their own, whatever reads them.
APART = frozenset(
    f"relax.{name}"
    for name in (
        "matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.layer_norm", "nn.rms_norm", "nn.softmax"
    )
)  # fmt: skip
FULL, MOST_FILLED = "relax.full", 1 << 22  # elements of a filled tensor that becomes a constant

Shape = tuple[int, ...]


def wide_fusion(module: Any) -> Any:
    """A Relax module that computes the same, elementwise operators of products before their reshapes.

    Only reshapes of known extents are passed, where the other operand of an operator can be had in the
    product's shape, and where TVM draws nothing into the function with it that MetaSchedule cannot schedule.
    Filled tensors become constants. A module that TVM cannot rewrite so stays as it is; a warning says so.
    """
    found = module.clone()
    try:
        for variable, function in module.functions.items():
            if isinstance(function, relax.Function):
                found.update_func(variable, _Wide(module).visit_expr(function))
        return tvm.transform.Sequential(
            [
                relax.transform.Normalize(),
                relax.transform.CanonicalizeBindings(),
                relax.transform.DeadCodeElimination(),
            ]
        )(found)
    except Exception as error:  # TVM's, of an expression that its visitors do not expect
        logger.warning("wmsched: products are fused as TVM has it: %s", str(error).strip()[-200:])
        return module


@mutator
class _Wide(PyExprMutator):
    """Goes through the operators in the order in which they are computed, so that one pass is enough."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.facts: dict[tuple[str, Any], bool] = {}

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""
        if name == FULL:
            return _filled(call)
        if name == RESHAPE:
            shape = shape_of(call)
            return call if shape is None else self._reshaped(call.args[0], shape)
        for place in range(len(call.args) if name in UNARY | BINARY else 0):
            moved = self._after(call, place)
            if moved is not call:
                return moved
        return call

    def _after(self, call: Any, place: int) -> Any:
        """The reshape of the operator, where its operand at `place` is the reshape of a product."""
        source, shape = self._source(call.args[place]), shape_of(call)
        if source is None or shape is None or shape_of(call.args[place]) != shape:
            return call
        flat = shape_of(source)
        if flat is None or not self._fact(self._of_product, source):
            return call
        arguments = []
        for k, operand in enumerate(call.args):
            fitting = source if k == place else self._fitting(operand, shape, flat)
            if fitting is None:
                return call
            arguments.append(fitting)
        moved = self.builder_.emit(relax.Call(call.op, arguments, call.attrs, call.ty_args))
        return self._reshaped(moved, shape)

    def _fitting(self, operand: Any, shape: Shape, flat: Shape) -> Any:
        """The other operand of an operator in `shape` for the same in `flat`; None if there is none."""
        given = shape_of(operand)
        if given is None or not self._fact(self._simple, operand):
            return None
        if given == shape and len(shape):
            return self._reshaped(operand, flat)
        least = without_ones(given)
        if not least:  # a number
            return operand if len(given) <= len(flat) else self._reshaped(operand, ())
        aligned = without_ones(shape) == without_ones(flat)
        if (aligned and len(least) <= len(flat)) or (len(least) == 1 and flat[-1:] == shape[-1:] == least):
            return operand if len(given) <= len(flat) else self._reshaped(operand, least)
        return None

    def _reshaped(self, operand: Any, shape: Shape) -> Any:
        source = self._source(operand)
        operand = operand if source is None else source
        if shape_of(operand) == shape:
            return operand
        return self.builder_.emit(relax.op.reshape(operand, shape))

    def _source(self, operand: Any) -> Any:
        """What an operand is the reshape of; None if it is not."""
        call = self._call(operand)
        return call.args[0] if call is not None and str(call.op.name) == RESHAPE else None

    def _bound(self, operand: Any) -> Any:
        """The expression that an operand stands for; None for an input of the function."""
        while isinstance(operand, relax.Var):  # one may stand for another
            operand = self.lookup_binding(operand)
        return operand

    def _call(self, operand: Any) -> Any:
        """The operator that computes an operand; None for what is none."""
        found = self._bound(operand)
        return found if isinstance(found, relax.Call) and isinstance(found.op, tvm.ir.Op) else None

    def _fact(self, what: Callable[[Any], bool], operand: Any) -> bool:
        """`what` of an operand, asked once of each: a chain of such as are read twice has 2^n ways back."""
        if not isinstance(operand, relax.Var):
            return what(operand)
        key = what.__name__, operand
        if key not in self.facts:
            self.facts[key] = what(operand)
        return self.facts[key]

    def _simple(self, operand: Any) -> bool:
        """Whether what TVM fuses of an operand's own operators into the function can be scheduled there."""
        call = self._call(operand)  # None of a constant, an input, one of several results
        if call is None or self._fact(self._constant, operand):
            return True
        name = str(call.op.name)
        return name in APART or (
            name in INLINED and all(self._fact(self._simple, each) for each in call.args)
        )

    def _constant(self, operand: Any) -> bool:
        """Whether it is computed of constants alone, which TVM does once, when it builds the model."""
        if not isinstance(operand, relax.Var):
            return True
        call = self._call(operand)
        if call is None:
            return isinstance(self._bound(operand), tvm.ir.Constant)
        return all(self._fact(self._constant, each) for each in call.args)

    def _of_product(self, operand: Any) -> bool:
        """Whether an operand is a product, or computed of one without a reshape in between."""
        call = self._call(operand)
        if call is None:
            return False
        name = str(call.op.name)
        if name == PRODUCT:
            return True
        return (
            name in INLINED
            and name != RESHAPE
            and any(self._fact(self._of_product, each) for each in call.args)
        )


def _filled(call: Any) -> Any:
    """A filled tensor as a constant, where its shape and what fills it are known."""
    shape, value = shape_of(call), getattr(call.args[1], "value", None)
    if shape is None or math.prod(shape) > MOST_FILLED or not isinstance(value, tvm.runtime.Tensor):
        return call
    return relax.const(np.full(shape, value.numpy()), str(call.ty.dtype))


def shape_of(expression: Any) -> Shape | None:
    """An expression's shape; None where it has none that is known."""
    shape = getattr(getattr(expression, "ty", None), "shape", None)
    extents = getattr(shape, "values", None)
    if extents is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in extents):
        return None
    return tuple(int(extent) for extent in extents)


def without_ones(shape: Shape) -> Shape:
    """A shape without its leading extents of one."""
    for k, extent in enumerate(shape):
        if extent != 1:
            return shape[k:]
    return ()
