"""Barriers: functions of one tensor that TVM fuses with nothing and that vanish after its fusion."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from wmsched.relax.passes.isolate_gates import CALL_TIR, OPAQUE, PATTERN_ATTRIBUTE
from wmsched.relax.passes.wide_fusion import shape_of

BARRIER = "wmsched.barrier"


def barrier_of(value: Any) -> Any:
    """Return a function that copies a tensor like `value`, for a call where nothing is to be fused."""
    data = te.placeholder(shape_of(value), str(value.ty.dtype), "data")
    copy = te.compute(data.shape, lambda *at: data(*at), "copy")
    function = te.create_prim_func([data, copy])
    return function.with_attr({BARRIER: True, PATTERN_ATTRIBUTE: OPAQUE})


def without_barriers(module: Any) -> Any:
    """Return a fused module in which readers of a barrier read its operand; the module itself without any."""
    if not any(_is_barrier(function) for function in module.functions.values()):
        return module
    found = module.clone()
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            found.update_func(variable, _Without(module).visit_expr(function))
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(found)


def _is_barrier(function: Any) -> bool:
    return (
        isinstance(function, tvm.tirx.PrimFunc) and function.attrs is not None and BARRIER in function.attrs
    )


@mutator
class _Without(PyExprMutator):
    """Mutator that has an operand in place of a barrier's call."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.programs = module

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op == CALL_TIR and _is_barrier(self.programs[call.args[0]]):
            return call.args[1].fields[0]
        return call
