"""Wider fusion of a product with the elementwise operators after it.

PyTorch exports a transformer's dense layer as a reshape to 2-D, a product, its bias, and a reshape back. TVM
fuses a product up to the first reshape only. ReLU, residual and mask would be functions of their own, which
read and write the whole tensor again. A constant mask would be recomputed in every layer, because TVM does
not treat a filled tensor as a constant.
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
#: Operators of few instructions an element. GELU etc. stay separate: fused they were slower in each of three
#: searches (GPT-2 twice, 5.3 and 5.5 ms instead of 5.0; BERT).
UNARY = frozenset(
    f"relax.{name}" for name in ("abs", "negative", "square", "nn.leakyrelu", "nn.relu", "nn.relu6")
)
BINARY = frozenset(
    f"relax.{name}" for name in ("add", "divide", "maximum", "minimum", "multiply", "subtract")
)

#: Operators that MetaSchedule inlines into their reader. Others would be a second loop nest in the function,
#: for which it has no schedules.
INLINED = UNARY | BINARY | frozenset(
    f"relax.{name}"
    for name in (
        "astype", "broadcast_to", "cos", "erf", "exp", "expand_dims", "log", "nn.gelu", "nn.gelu_tanh",
        "nn.silu", "permute_dims", "power", "reshape", "rsqrt", "sigmoid", "sin", "sqrt", "squeeze",
        "strided_slice", "tanh",
    )
)  # fmt: skip
#: Operators that TVM never fuses into their reader.
SEPARATE = frozenset(
    f"relax.{name}"
    for name in (
        "matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.layer_norm", "nn.rms_norm", "nn.softmax"
    )
)  # fmt: skip
FULL, MAX_FILLED_ELEMENTS = "relax.full", 1 << 22  # elements of a filled tensor that becomes a constant

Shape = tuple[int, ...]


def wide_fusion(module: Any) -> Any:
    """Return an equal Relax module with elementwise operators of products before their reshapes.

    It moves an operator only before a reshape of known extents, if the other operand fits the product's
    shape, and if MetaSchedule can schedule all that TVM then fuses. Filled tensors become constants. If TVM
    cannot rewrite the module, it is returned unchanged and a warning says so.
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
    except Exception as error:  # TVM's visitors do not expect some expression
        logger.warning("wmsched: products are fused as TVM has it: %s", str(error).strip()[-200:])
        return module


@mutator
class _Wide(PyExprMutator):
    """Mutator in the order of computation, so that one pass suffices."""

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
        """Return the operator's reshape if its operand at `place` is the reshape of a product."""
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
        """Return the other operand of an operator in `shape`, reshaped for `flat`; None if impossible."""
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
        """Return what an operand is a reshape of; None if it is none."""
        call = self._call(operand)
        return call.args[0] if call is not None and str(call.op.name) == RESHAPE else None

    def _bound(self, operand: Any) -> Any:
        """Return an operand's bound expression; None for an input of the function."""
        while isinstance(operand, relax.Var):  # a variable may be bound to another
            operand = self.lookup_binding(operand)
        return operand

    def _call(self, operand: Any) -> Any:
        """Return the operator that computes an operand; None if there is none."""
        found = self._bound(operand)
        return found if isinstance(found, relax.Call) and isinstance(found.op, tvm.ir.Op) else None

    def _fact(self, what: Callable[[Any], bool], operand: Any) -> bool:
        """Return the cached `what` of an operand; n operands that are read twice have 2^n paths."""
        if not isinstance(operand, relax.Var):
            return what(operand)
        key = what.__name__, operand
        if key not in self.facts:
            self.facts[key] = what(operand)
        return self.facts[key]

    def _simple(self, operand: Any) -> bool:
        """Whether MetaSchedule can schedule the operand's operators that TVM would fuse into the function."""
        call = self._call(operand)  # None for a constant, an input, one of several results
        if call is None or self._fact(self._constant, operand):
            return True
        name = str(call.op.name)
        return name in SEPARATE or (
            name in INLINED and all(self._fact(self._simple, each) for each in call.args)
        )

    def _constant(self, operand: Any) -> bool:
        """Whether an operand depends on constants only, which TVM computes once at build time."""
        if not isinstance(operand, relax.Var):
            return True
        call = self._call(operand)
        if call is None:
            return isinstance(self._bound(operand), tvm.ir.Constant)
        return all(self._fact(self._constant, each) for each in call.args)

    def _of_product(self, operand: Any) -> bool:
        """Whether an operand is a product, or computed from one without a reshape in between."""
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
    """Return a filled tensor as a constant; the call itself if its shape or value is unknown."""
    shape, value = shape_of(call), getattr(call.args[1], "value", None)
    if shape is None or math.prod(shape) > MAX_FILLED_ELEMENTS or not isinstance(value, tvm.runtime.Tensor):
        return call
    return relax.const(np.full(shape, value.numpy()), str(call.ty.dtype))


def shape_of(expression: Any) -> Shape | None:
    """Return an expression's shape; None if unknown."""
    shape = getattr(getattr(expression, "ty", None), "shape", None)
    extents = getattr(shape, "values", None)
    if extents is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in extents):
        return None
    return tuple(int(extent) for extent in extents)


def without_ones(shape: Shape) -> Shape:
    """Return a shape without its leading extents of one."""
    for k, extent in enumerate(shape):
        if extent != 1:
            return shape[k:]
    return ()
