"""A tensor that is taken apart into a few pieces: each is cut by what reads it.

TVM has one function write all of them to memory first, a recurrent step's gates or attention's queries, keys
and values. A cut it fuses with what is computed of the piece.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.ir import Op
from tvm.relax.expr_functor import PyExprMutator, mutator

FEW = 7  # pieces: of more, each cut would be a function of its own, for its place is a number in it
SPLIT = Op.get("relax.split")


def cut_apart(module: Any) -> Any:
    """A Relax module with a cut for each piece of a tensor that is parted into at most `FEW`."""
    found = module.clone()
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            found.update_func(variable, _Cuts(module).visit_expr(function))
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(found))


@mutator
class _Cuts(PyExprMutator):
    """Goes through the pieces that a function takes."""

    def visit_tuple_getitem_(self, item: Any) -> Any:
        item = self.visit_expr_post_order(item)
        split = self.lookup_binding(item.tuple_value) if isinstance(item.tuple_value, relax.Var) else None
        if not isinstance(split, relax.Call) or split.op != SPLIT or len(split.ty.fields) > FEW:
            return item
        axis = int(split.attrs.axis)
        extents = [piece.shape[axis] for piece in split.ty.fields]
        if not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return item
        start = sum(map(int, extents[: item.index]))
        end = start + int(extents[item.index])
        return relax.op.strided_slice(split.args[0], axes=[axis], begin=[start], end=[end])
