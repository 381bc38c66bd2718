"""Rewrite of a Relax module for an NVIDIA GPU: each attention is one kernel."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from wmsched.codegen.tf32 import KEY
from wmsched.features.gpus import gpu_of
from wmsched.relax.attention.kernel import Attention, attention_kernel, tiled
from wmsched.relax.attention.match import Found, attention_of
from wmsched.relax.attention.views import Bindings
from wmsched.relax.int8.function import Rewrite, rewritten
from wmsched.relax.passes.fold_constants import fold
from wmsched.toolchain.targets import target_text

__all__ = ["fused_attention"]

logger = logging.getLogger("wmsched")

Kernel = Callable[[Attention], Any]


def fused_attention(module: Any, target: Any, kernel: Kernel | None = None) -> Any:
    """Return a Relax module whose attentions are one kernel each; the module itself without any.

    Parameters
    ----------
    target : tvm.target.Target
        Of an NVIDIA GPU; for any other the module is returned.
    kernel : callable (Attention) -> PrimFunc, optional
        In place of the GPU's.
    """
    if target.kind.name != "cuda":
        return module
    folded = fold(module)  # a mask of constants is one
    count = 0

    def made(attention: Attention) -> Any:
        nonlocal count
        count += 1
        gpu = gpu_of(target_text(target))
        tiles = tiled(attention, 0 if gpu is None else gpu.sms)
        return (kernel or attention_kernel)(tiles)

    try:
        found = rewritten(folded, lambda function, builder: _Attentions(function, builder, target, made))
    except Exception as error:  # a binding of unknown form, or what TVM's builder does not expect
        level = logging.WARNING if count else logging.INFO
        logger.log(level, "wmsched: attentions stay as they are: %s", str(error).strip()[-300:])
        return module
    return found if count else module


class _Attentions(Rewrite):
    """One function, binding by binding."""

    def __init__(self, function: Any, builder: Any, target: Any, kernel: Kernel) -> None:
        super().__init__(function, builder, None, {})
        self.kernel = kernel
        self.rounded: dict[tuple[Any, str], Any] = {}
        given = Bindings(self.bindings, function.body.body)
        how: dict[str, Any] = {
            "tf32": KEY in [str(key) for key in target.keys],
            "capability": int(str(target.attrs["arch"]).removeprefix("sm_").rstrip("af")) / 10,
        }
        found = [attention_of(given, binding.var, **how) for binding in self.bindings]
        self.found: dict[Any, Found] = {one.last: one for one in found if one is not None}

    def _visit(self, variable: Any, value: Any) -> None:
        found = self.found.get(variable)
        if found is None:
            super()._visit(variable, value)
            return
        operands = [self._rounded(one, found.attention.q.dtype) for one in found.operands]
        if found.mask is not None:
            operands.append(self._mask(found))
        out = found.attention.out
        kernel = self.kernel(found.attention).without_attr("global_symbol")
        function = self.builder.add_func(kernel, "fused_attention")
        call = relax.call_tir(function, operands, relax.TensorType(out.shape, out.dtype))
        self._first[variable] = self.builder.emit(call)

    def _rounded(self, operand: Any, dtype: str) -> Any:
        """Return an operand in a type, rounded once for all that read it."""
        given = self.substituted(operand)
        if str(operand.ty.dtype) == dtype:
            return given
        if (given, dtype) not in self.rounded:
            self.rounded[given, dtype] = self.builder.emit(relax.op.astype(given, dtype))
        return self.rounded[given, dtype]

    def _mask(self, found: Found) -> Any:
        """Return what is added to the scores, as the model has it, or made of a condition."""
        mask, view = found.mask, found.attention.mask
        assert mask is not None and view is not None  # of `attention_of`
        given = self.substituted(mask.expression)
        if mask.value is None:
            return given
        numbers = [relax.const(np.asarray(one, np.float32)) for one in (0.0, mask.value)]
        return self.builder.emit(relax.op.where(given, *(numbers if mask.kept else numbers[::-1])))
