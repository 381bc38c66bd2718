"""Sums of half precision in float32, as PyTorch and onnxruntime compute them.

TVM adds in the type of what it adds: a running sum of ones stays at 256 in bfloat16 and at 2048 in float16.
Here an operator that sums takes its operands as float32, and its result is rounded once.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

HALF, WIDE = ("float16", "bfloat16"), "float32"
SCANS = {"relax.cumsum": relax.op.cumsum, "relax.cumprod": relax.op.cumprod}  # they name a type of their own
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
    """A Relax module that sums in float32 where it would sum in half precision; itself if it does not.

    What the operators give keeps its type. Batch normalisation sums in training alone and is left out, as is
    what an importer has written as a program in TensorIR (ONNX's ``Einsum``).
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
    """The half precision that an operator sums in; "" where it does not."""
    name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""
    return _half(call) if name in SUMS else ""


def _half(expression: Any) -> str:
    """An expression's type if it is half precision; "" of any other, and of what is no tensor."""
    kind = getattr(expression, "ty", None)
    dtype = str(kind.dtype) if isinstance(kind, relax.TensorType) else ""
    return dtype if dtype in HALF else ""


@mutator
class _Wide(PyExprMutator):
    """Goes through the operators of a function."""

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
            total = scan(operands[0], axis, WIDE, bool(call.attrs.exclusive))
        else:
            total = relax.Call(call.op, operands, call.attrs, call.ty_args)
        return relax.op.astype(self.builder_.emit(total), half)

    def _wide(self, operand: Any) -> Any:
        return self.builder_.emit(relax.op.astype(operand, WIDE)) if _half(operand) else operand
