"""Rewrite of a Relax module for an NVIDIA GPU: each attention is one kernel."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from wmsched.codegen.tf32 import KEY
from wmsched.features.gpus import gpu_of
from wmsched.relax.attention.kernel import Attention, View, attention_kernel, tiled
from wmsched.relax.attention.masks import Mask, causal_of
from wmsched.relax.attention.match import Found, attention_of
from wmsched.relax.attention.views import FLOATS, Bindings, Seen
from wmsched.relax.int8.function import Rewrite, rewritten
from wmsched.relax.passes.fold_constants import fold
from wmsched.toolchain.targets import target_text

__all__ = ["fused_attention"]

logger = logging.getLogger("wmsched")

MIN_ROWS, MIN_WIDTH, MAX_WIDTH = 16, 16, 128
ALIGNED_BYTES = 16  # that a copy moves at once
MAX_ELEMENTS = 1 << 31  # that a place in a tensor is an int of
CAPABILITY = {"float32": 0.0, "float16": 7.5, "tf32": 8.0, "bfloat16": 8.0}  # that a kind of products needs

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


def described(given: Bindings, found: Found, *, tf32: bool) -> tuple[Attention, Mask | None] | None:
    """Return an attention as the kernel has it, and the mask that it reads; None if it cannot compute it.

    Parameters
    ----------
    tf32 : bool
        Whether products of float32 may be computed so.
    """
    views, dtype = (found.q.view, found.k.view, found.v.view), found.q.view.dtype
    kind = "tf32" if dtype == "float32" and tf32 else dtype
    fits = found.rows >= MIN_ROWS and MIN_WIDTH <= found.width <= MAX_WIDTH and found.outputs == found.width
    if not fits or found.width % _aligned(dtype) or any(view.dtype != dtype for view in views):
        return None
    causal, masks = None, list[Mask]()
    for mask in found.masks:
        order = causal_of(given, mask, found.rows, found.keys)
        if order is None or causal is not None:
            masks.append(mask)
        else:
            causal = order
    view = masks[0].view(found.scores) if masks else None
    if len(masks) > 1 or (masks and (view is None or view.dtype not in FLOATS)):
        return None
    # by either guard a row without a key is zeros; what is NaN for another reason stays NaN
    attention = Attention(
        batch=found.batch, heads=found.heads, rows=found.rows, keys=found.keys, width=found.width, kind=kind,
        q=views[0], k=views[1], v=views[2], out=found.out, mask=view,
        scale=found.scale, causal=causal, is_safe=bool(found.zero),
    )  # fmt: skip
    return attention, masks[0] if masks else None


def _aligned(dtype: str) -> int:
    """Return of how many elements a copy's places are multiples."""
    return ALIGNED_BYTES // (4 if dtype == "float32" else 2)


def _is_readable(_: str, one: Seen) -> bool:
    view = one.view
    if view.dtype not in FLOATS or math.prod(view.shape) >= MAX_ELEMENTS or view.strides[3] != 1:
        return False
    return not any(number % _aligned(view.dtype) for number in (*view.strides[:3], view.offset))


def _is_writable(view: View) -> bool:
    if view.dtype not in FLOATS or math.prod(view.shape) >= MAX_ELEMENTS or view.strides[3] != 1:
        return False
    return not any(number % 2 for number in (*view.strides[:3], view.offset))  # two columns at once


class _Attentions(Rewrite):
    """One function, binding by binding."""

    def __init__(self, function: Any, builder: Any, target: Any, kernel: Kernel) -> None:
        super().__init__(function, builder, None, {})
        self.kernel = kernel
        self.rounded: dict[tuple[Any, str], Any] = {}
        given = Bindings(((one.var, one.value) for one in self.bindings), function.body.body)
        capability = int(str(target.attrs["arch"]).removeprefix("sm_").rstrip("af")) / 10
        tf32 = KEY in [str(key) for key in target.keys]
        self.found: dict[Any, tuple[Found, Attention, Mask | None]] = {}
        for binding in self.bindings:
            found = attention_of(given, binding.var, _is_readable, _is_writable)
            made = None if found is None else described(given, found, tf32=tf32)
            if found is not None and made is not None and capability >= CAPABILITY[made[0].kind]:
                self.found[found.last] = (found, *made)

    def _visit(self, variable: Any, value: Any) -> None:
        if variable not in self.found:
            super()._visit(variable, value)
            return
        found, attention, mask = self.found[variable]
        operands = [self._rounded(one.base, attention.q.dtype) for one in (found.q, found.k, found.v)]
        if mask is not None:
            operands.append(mask.added(self.builder, self.substituted(mask.expression)))
        out = attention.out
        kernel = self.kernel(attention).without_attr("global_symbol")
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
