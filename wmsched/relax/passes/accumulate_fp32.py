"""float32 accumulation of half-precision sums, as in PyTorch and onnxruntime.

TVM accumulates in the type of the operands: a running sum of ones stops at 256 in bfloat16 and at 2048 in
float16. This pass casts a summing operator's operands to float32 and rounds its result once.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

HALF_TYPES, ACCUMULATOR_TYPE = ("float16", "bfloat16"), "float32"
SCANS = {"relax.cumsum": relax.op.cumsum, "relax.cumprod": relax.op.cumprod}  # these take a dtype argument
SUMS = frozenset(SCANS) | frozenset(
    f"relax.{name}"
    for name in (
        "matmul", "mean", "prod", "std", "sum", "variance",
        "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d", "nn.attention",
        "nn.attention_bias", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.conv1d",
        "nn.conv1d_transpose", "nn.conv2d", "nn.conv2d_transpose", "nn.conv3d", "nn.conv3d_transpose",
        "nn.cross_entropy_with_logits", "nn.group_norm", "nn.instance_norm", "nn.layer_norm",
        "nn.log_softmax", "nn.nll_loss", "nn.rms_norm", "nn.softmax",
    )
)  # fmt: skip


def wide_sums(module: Any) -> Any:
    """Return a Relax module that accumulates half-precision sums in float32; the module itself without such.

    Results keep their type. Batch normalization, which sums in training only, and an importer's TensorIR
    (ONNX's ``Einsum``) stay unchanged.
    """
    found = module.clone()
    widened = False
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function) and _sums_in_half(function):
            found.update_func(variable, _Wide(module).visit_expr(function))
            widened = True
    return relax.transform.Normalize()(found) if widened else module


def _sums_in_half(function: Any) -> bool:
    found: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call) and (kind := _summed(expression)):
            found.append(kind)

    relax.analysis.post_order_visit(function, visit)
    return bool(found)


def _summed(call: Any) -> str:
    """Return the half-precision type in which an operator sums, or ""."""
    name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""
    return _half(call) if name in SUMS else ""


def _half(expression: Any) -> str:
    """Return an expression's type if it is a half-precision tensor, else ""."""
    kind = getattr(expression, "ty", None)
    dtype = str(kind.dtype) if isinstance(kind, relax.TensorType) else ""
    return dtype if dtype in HALF_TYPES else ""


@mutator
class _Wide(PyExprMutator):
    """Mutator that casts the operands of summing operators."""

    def visit_call_(self, call: Any) -> Any:
        half = _summed(call)
        call = self.visit_expr_post_order(call)
        if not half:
            return call
        operands = [self._wide(operand) for operand in call.args]
        scan = SCANS.get(str(call.op.name))
        if scan is not None:
            axis = call.attrs.axis
            axis = None if axis is None else int(axis)
            total = scan(operands[0], axis, ACCUMULATOR_TYPE, bool(call.attrs.exclusive))
        else:
            total = relax.Call(call.op, operands, call.attrs, call.ty_args)
        return relax.op.astype(self.builder_.emit(total), half)

    def _wide(self, operand: Any) -> Any:
        return self.builder_.emit(relax.op.astype(operand, ACCUMULATOR_TYPE)) if _half(operand) else operand
