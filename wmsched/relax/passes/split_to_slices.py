"""Replacement of a split into few pieces by slices.

TVM writes all pieces of a split to memory in one function: a recurrent step's gates, or attention's queries,
keys and values. It fuses a slice with its reader.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.ir import Op
from tvm.relax.expr_functor import PyExprMutator, mutator

MAX_SLICES = 7  # with more, each slice would be a function of its own: its offset is a constant in it
SPLIT = Op.get("relax.split")


def cut_apart(module: Any) -> Any:
    """Return a Relax module with slices for each split into at most `MAX_SLICES` pieces."""
    found = module.clone()
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            found.update_func(variable, _Cuts(module).visit_expr(function))
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(found))


@mutator
class _Cuts(PyExprMutator):
    """Mutator that replaces the pieces of a split by slices."""

    def visit_tuple_getitem_(self, item: Any) -> Any:
        item = self.visit_expr_post_order(item)
        split = self.lookup_binding(item.tuple_value) if isinstance(item.tuple_value, relax.Var) else None
        if not isinstance(split, relax.Call) or split.op != SPLIT or len(split.ty.fields) > MAX_SLICES:
            return item
        axis = int(split.attrs.axis)
        extents = [piece.shape[axis] for piece in split.ty.fields]
        if not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return item
        start = sum(map(int, extents[: item.index]))
        end = start + int(extents[item.index])
        return relax.op.strided_slice(split.args[0], axes=[axis], begin=[start], end=[end])
