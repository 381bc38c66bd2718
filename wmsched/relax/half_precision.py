"""Half precision of a float32 model: products of half floats, sums in float32.

Relax's `ToMixedPrecision` chooses, as PyTorch's autocast does: products and convolutions take float16 and sum
in float32; elementwise operators after them and moves of data keep the short type; the rest stays float32.
Two things are put right after it. Sums that it leaves in half floats, such as a pooling's, and functions with
a curve, such as GELU's erf, are computed in float32 and rounded once. And for bfloat16, which TVM's pass does
not know, its float16 becomes bfloat16. Inputs and outputs of the model keep their types.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from wmsched.relax.passes.accumulate_fp32 import SUMS, wide_sums

HALF = ("float16", "bfloat16")
FULL = "float32"
CURVES = frozenset(
    f"relax.{name}"
    for name in (
        "divide", "erf", "exp", "log", "nn.gelu", "nn.gelu_tanh", "nn.selu", "nn.silu", "nn.softplus",
        "power", "rsqrt", "sigmoid", "sqrt", "tanh",
    )
)  # fmt: skip


def half_products(module: Any, dtype: str) -> Any:
    """Return a Relax module of float32 with its products in a half type; sums stay in float32.

    Parameters
    ----------
    dtype : "float16" or "bfloat16"
    """
    mixed = tvm.transform.Sequential(
        [
            relax.transform.DecomposeOpsForInference(),
            relax.transform.CanonicalizeBindings(),
            relax.transform.ToMixedPrecision(FULL),
        ]
    )(module)
    found = wide_sums(mixed)
    changed = found.clone()
    for variable, function in found.functions.items():
        if isinstance(function, relax.Function):
            changed.update_func(variable, _Rounded(found, dtype).visit_expr(function))
    return relax.transform.Normalize()(changed)


def products_of(module: Any) -> dict[str, int]:
    """Return how many of a module's products take each type of operands."""
    found: dict[str, int] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call) and _name(expression) in PRODUCTS:
            dtype = str(expression.args[0].ty.dtype)
            found[dtype] = found.get(dtype, 0) + 1

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found


PRODUCTS = frozenset(name for name in SUMS if name == "relax.matmul" or name.startswith("relax.nn.conv"))


def _name(call: Any) -> str:
    return str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""


@mutator
class _Rounded(PyExprMutator):
    """Mutator that computes curves in float32 and names the half type that is wanted."""

    def __init__(self, module: Any, dtype: str) -> None:
        super().__init__(module)
        self.dtype = dtype

    def visit_call_(self, call: Any) -> Any:
        was_half = isinstance(call.ty, relax.TensorType) and str(call.ty.dtype) == HALF[0]
        given = str(call.args[0].ty.dtype) if was_half and _name(call) == "relax.astype" else ""
        call = self.visit_expr_post_order(call)
        if given:
            return relax.op.astype(call.args[0], self.dtype)
        if was_half and _name(call) in CURVES:
            wide = [self.builder_.emit(relax.op.astype(one, FULL)) for one in call.args]
            result = self.builder_.emit(relax.Call(call.op, wide, call.attrs, call.ty_args))
            return relax.op.astype(result, self.dtype)
        return call

    def visit_constant_(self, constant: Any) -> Any:
        if str(constant.data.dtype) != HALF[0] or self.dtype == HALF[0]:
            return constant
        wide = relax.const(constant.data.numpy().astype(FULL), FULL)
        return self.builder_.emit(relax.op.astype(wide, self.dtype))
