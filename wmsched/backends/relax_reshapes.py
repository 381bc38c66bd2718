"""What is computed of each element of a product comes before the reshapes that follow the product.

PyTorch exports a dense layer of a transformer as a reshape to two dimensions, a product, its bias, and a
reshape back. TVM fuses a product with what is computed of its elements up to the first reshape: GELU, the
residual's sum and a mask's would be functions of their own, which read and write the whole tensor again.
"""

from __future__ import annotations

import logging
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

logger = logging.getLogger("wmsched")

RESHAPE, PRODUCT = "relax.reshape", "relax.matmul"
UNARY = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "cos", "erf", "exp", "log", "negative", "rsqrt", "sigmoid", "sin", "sqrt", "square", "tanh",
        "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.relu6", "nn.silu",
    )
)  # fmt: skip
BINARY = frozenset(
    f"relax.{name}" for name in ("add", "divide", "maximum", "minimum", "multiply", "power", "subtract")
)

Shape = tuple[int, ...]


def late_reshapes(module: Any) -> Any:
    """A Relax module that computes the same, elementwise operators of products before their reshapes.

    Only reshapes of known extents are passed, and only where the other operand of an operator can be had in
    the product's shape. A module that TVM cannot rewrite so stays as it is, and a warning says so.
    """
    found = module.clone()
    try:
        for variable, function in module.functions.items():
            if isinstance(function, relax.Function):
                found.update_func(variable, _Late(module).visit_expr(function))
        return tvm.transform.Sequential(
            [
                relax.transform.Normalize(),
                relax.transform.CanonicalizeBindings(),
                relax.transform.DeadCodeElimination(),
            ]
        )(found)
    except Exception as error:  # TVM's, of an expression that its visitors do not expect
        logger.warning("wmsched: reshapes stay where they are: %s", str(error).strip()[-200:])
        return module


@mutator
class _Late(PyExprMutator):
    """Goes through the operators in the order in which they are computed, so that one pass is enough."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""
        if name == RESHAPE:
            shape = shape_of(call)
            return call if shape is None else self._reshaped(call.args[0], shape)
        if name in UNARY:
            return self._after(call, 0, [])
        if name in BINARY:
            for place in (0, 1):
                moved = self._after(call, place, [1 - place])
                if moved is not call:
                    return moved
        return call

    def _after(self, call: Any, place: int, others: list[int]) -> Any:
        """The reshape of the operator, where its operand at `place` is the reshape of a product."""
        source, shape = self._source(call.args[place]), shape_of(call)
        if source is None or shape is None or shape_of(call.args[place]) != shape:
            return call
        flat = shape_of(source)
        if flat is None or not self._of_product(source):
            return call
        arguments = list(call.args)
        arguments[place] = source
        for other in others:
            fitting = self._fitting(call.args[other], shape, flat)
            if fitting is None:
                return call
            arguments[other] = fitting
        moved = self.builder_.emit(relax.Call(call.op, arguments, call.attrs, call.ty_args))
        return self._reshaped(moved, shape)

    def _fitting(self, operand: Any, shape: Shape, flat: Shape) -> Any:
        """The other operand of an operator in `shape` for the same in `flat`; None if there is none."""
        given = shape_of(operand)
        if given is None:
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

    def _call(self, operand: Any) -> Any:
        """The operator that computes an operand; None for what is none."""
        found = operand
        while isinstance(found, relax.Var):  # one may stand for another
            found = self.lookup_binding(found)
        return found if isinstance(found, relax.Call) and isinstance(found.op, tvm.ir.Op) else None

    def _of_product(self, operand: Any) -> bool:
        """Whether an operand is a product, or computed of each of its elements."""
        call = self._call(operand)
        if call is None:
            return False
        name = str(call.op.name)
        if name == PRODUCT:
            return True
        return name in UNARY | BINARY and any(self._of_product(each) for each in call.args)


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
