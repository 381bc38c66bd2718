"""Products of one row: with a cache, which is read as it lies, and with a vocabulary of any size.

PyTorch writes attention as a product with the keys transposed and scaled. For the one row of a decoder's step
a copy of the whole cache would be made, transposed, to be read once. Each score is a sum over a row of the
cache as it lies.

A vocabulary has often a number of words that no vector's length divides, such as GPT-2's 50257. A schedule's
tiles divide extents, so the weights get columns of zeros, once, and the result loses theirs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from wmsched.relax.passes.wide_fusion import shape_of
from wmsched.relax.state.declare import stateful

__all__ = ["one_row"]

MATMUL, RESHAPE, PERMUTE = "relax.matmul", "relax.reshape", "relax.permute_dims"
BROADCAST, MULTIPLY = "relax.broadcast_to", "relax.multiply"
MIN_COLUMNS = 1024  # of weights that get columns of zeros
COLUMNS = 64  # of which a multiple is made: four vectors of AVX-512


def one_row(module: Any, target: Any) -> Any:
    """Return a module of Relax operators without copies of its states for products of one row.

    Parameters
    ----------
    module : tvm.IRModule
        As `declare.declared` marked it; a module without states is returned as it is.
    """
    main = stateful(module, target)
    if main is None:
        return module
    found = module.clone()
    found["main"] = _Rows(module).visit_expr(main)
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(found))


@mutator
class _Rows(PyExprMutator):
    """Mutator of products of one row, and of broadcasts that change nothing."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = _name(call)
        if (
            name == BROADCAST
            and shape_of(call.args[0]) is not None
            and _shape(call) == shape_of(call.args[0])
        ):
            return call.args[0]
        return self._product(call) if name == MATMUL else call

    def _product(self, call: Any) -> Any:
        """Return a product as sums over a cache's rows, or with more columns; any other as it is."""
        left, right = shape_of(call.args[0]), shape_of(call.args[1])
        if left is None or right is None or len(left) < 2 or len(left) != len(right) or left[-2] != 1:
            return call
        if left[:-2] != right[:-2] or str(call.args[0].ty.dtype) != "float32":
            return call
        if self._is_weight(call.args[1]):
            odd = len(right) == 2 and right[1] >= MIN_COLUMNS and right[1] % COLUMNS
            return self._widened(call, right) if odd else call
        turned, factor = self._turned(call.args[1])
        if turned is None:
            return call
        emit = self.builder_.emit
        rows = emit(relax.op.reshape(turned, (*right[:-2], right[-1], right[-2])))
        row = call.args[0]
        if factor is not None:
            row = emit(relax.op.multiply(row, factor))
        sums = emit(relax.op.sum(emit(relax.op.multiply(row, rows)), axis=-1))
        return relax.op.reshape(sums, (*left[:-1], right[-1]))

    def _widened(self, call: Any, shape: tuple[int, ...]) -> Any:
        """Return the product with weights that have columns of zeros besides."""
        emit, (rows, columns) = self.builder_.emit, shape
        zeros = relax.const(np.zeros((rows, -columns % COLUMNS), np.float32))
        weights = emit(relax.op.concat([call.args[1], zeros], axis=1))
        found = emit(relax.op.matmul(call.args[0], weights))
        return relax.op.strided_slice(found, [1], [0], [columns])

    def _is_weight(self, value: Any) -> bool:
        """Whether a value is a constant, or one whose axes are exchanged."""
        call: Any = self.lookup_binding(value) if isinstance(value, relax.Var) else value
        return isinstance(call.args[0] if _name(call) == PERMUTE else call, tvm.ir.Constant)

    def _turned(self, value: Any) -> tuple[Any, Any]:
        """Return the tensor whose last two axes a value has exchanged, and its factor; None of others."""
        factor = None
        shape = shape_of(value) or ()
        while True:
            call: Any = self.lookup_binding(value) if isinstance(value, relax.Var) else None
            name = _name(call)
            if isinstance(call, relax.Var):
                value = call
            elif name == RESHAPE and (shape_of(call.args[0]) or ())[-2:] == shape[-2:]:
                value = call.args[0]
            elif name == MULTIPLY and factor is None and _is_number(call.args[1]):
                value, factor = call.args[0], call.args[1]
            elif name == PERMUTE and _swaps(call):
                return call.args[0], factor
            else:
                return None, None


def _name(call: Any) -> str:
    return str(getattr(getattr(call, "op", None), "name", "")) if isinstance(call, relax.Call) else ""


def _shape(call: Any) -> tuple[int, ...] | None:
    """Return the shape that a broadcast gives."""
    extents: list[Any] = list(call.args[1].values) if isinstance(call.args[1], relax.ShapeExpr) else [None]
    return tuple(map(int, extents)) if all(isinstance(one, tvm.tirx.IntImm) for one in extents) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, tvm.ir.Constant) and math.prod(value.value.shape) == 1


def _swaps(call: Any) -> bool:
    shape = shape_of(call.args[0])
    if shape is None or call.attrs.axes is None:
        return False
    axes = [int(axis) % len(shape) for axis in call.attrs.axes]
    return axes == [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
