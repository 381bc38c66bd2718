"""Attentions of every kind, each one kernel (`wmsched.relax.attention`), with what they compute in numpy.

A kernel has one schedule. So a kind has one line for an architecture where products have one for each design
space.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["ATTENTIONS", "SMALL_ATTENTIONS", "AttentionKind"]

LOWEST = -3.4028234663852886e38  # of float32: what some exporters mask by, in place of minus infinity


@dataclass(frozen=True, kw_only=True)
class AttentionKind:
    """Kind of attention.

    Parameters
    ----------
    name : str
    shape : tuple of int
        batch, heads, rows, keys, and width of a head.
    dtype, out : str
        Of the operands, of a mask, and of the output.
    tf32 : bool
        Whether float32 is multiplied as TF32.
    causal : int, optional
        How many keys after its own row a row sees.
    masked : str
        "" without a mask; "rows" of one that is added for each row, the same for all heads; "keys" of one for
        each key of a batch, the lowest number of float32 where there is none.
    packed : bool
        Whether queries, keys and values lie side by side in one tensor, as one product makes them.
    """

    name: str
    shape: tuple[int, int, int, int, int]
    dtype: str = "float16"
    out: str = "float16"
    tf32: bool = False
    causal: int | None = None
    masked: str = ""
    packed: bool = False

    def attention(self, multiprocessors: int = 0) -> Any:
        """Return the attention with its tiles."""
        from wmsched.relax.attention.kernel import Attention, View, tiled

        batch, heads, rows, keys, width = self.shape
        wide, mask = heads * width, None

        def of(place: int, tall: int) -> View:
            if self.packed:  # [batch, rows, 3, heads, width]
                shape = (batch, tall, 3 * wide)
                return View(shape, self.dtype, (3 * tall * wide, width, 3 * wide, 1), place * wide)
            return View((batch, heads, tall, width), self.dtype, (tall * wide, tall * width, width, 1))

        if self.masked == "rows":
            mask = View((batch, 1, rows, keys), self.dtype, (rows * keys, 0, keys, 1))
        elif self.masked:
            mask = View((batch, 1, 1, keys), self.dtype, (keys, 0, 0, 1))
        out = View((batch, rows, wide), self.out, (rows * wide, width, wide, 1))
        return tiled(
            Attention(
                batch=batch,
                heads=heads,
                rows=rows,
                keys=keys,
                width=width,
                kind="tf32" if self.tf32 else self.dtype,
                q=of(0, rows),
                k=of(1, keys),
                v=of(2, keys),
                out=out,
                mask=mask,
                scale=width**-0.5,
                causal=self.causal,
                is_safe=True,
            ),
            multiprocessors,
        )

    def scheduled(self, board: str) -> tuple[Any, Any]:
        """Return what has the kernel as `mod`, as a schedule has its program, and the target of a board."""
        import tvm

        from wmsched.features.gpus import cuda_target, gpu_of
        from wmsched.relax.attention.kernel import attention_kernel

        gpu = gpu_of(board)
        kernel = attention_kernel(self.attention(0 if gpu is None else gpu.sms))
        host = {"kind": "llvm", "num-cores": 1}
        target = tvm.target.Target(tvm.target.Target(cuda_target(board)), host=host)
        return SimpleNamespace(mod=tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})), target

    def operands(self, generator: Any) -> dict[str, Any]:
        """Return random float32 numbers by the names of the kernel's arguments, the output's place without.

        Parameters
        ----------
        generator : numpy.random.Generator
        """
        attention = self.attention()
        made = {name: generator.standard_normal(getattr(attention, name).shape) for name in "qkv"}
        if self.packed:
            made["k"] = made["v"] = made["q"]
        if attention.mask is not None:
            none = generator.random(attention.mask.shape) < 0.3
            none[..., 0] = False
            added = generator.standard_normal(attention.mask.shape)
            made["mask"] = np.where(none, -np.inf if self.masked == "rows" else LOWEST, added)
            if self.masked == "rows" and self.shape[2] > 1:
                made["mask"][:, :, 1] = -np.inf  # a row without a key is zeros
        return {name: np.asarray(one, np.float32) for name, one in made.items()}

    def four(self, name: str, data: Any) -> Any:
        """Return an operand, of numpy or PyTorch, as batches, heads, rows and columns."""
        batch, heads, rows, keys, width = self.shape
        if not self.packed:
            return data
        tall = rows if name == "q" else keys
        return data.reshape(batch, tall, 3, heads, width)[:, :, "qkv".index(name)].swapaxes(1, 2)

    def reference(self, given: dict[str, Any]) -> Any:
        """Return the output of float32 operands, in float32."""
        q, k, v = (self.four(name, given[name]) for name in "qkv")
        scores = q @ k.swapaxes(2, 3) * np.float32(self.shape[4] ** -0.5)
        if "mask" in given:
            scores = scores + given["mask"]
        if self.causal is not None:
            rows, keys = np.arange(self.shape[2])[:, None], np.arange(self.shape[3])[None]
            scores = np.where(keys > rows + self.causal, -np.inf, scores)
        most = scores.max(-1, keepdims=True)
        shares = np.exp(scores - np.where(np.isfinite(most), most, 0))
        total = shares.sum(-1, keepdims=True)
        found = shares / np.where(total == 0, 1, total) @ v
        return found.swapaxes(1, 2).reshape(self.attention().out.shape)

    @property
    def flops(self) -> float:
        return self.attention().operations

    def off_by(self, source: str, mod: Any) -> float:
        """Return the largest error of a source, in both orders of the threads, over the largest output."""
        from benchmarks.gpu import cuda_on_cpu

        given = self.operands(np.random.default_rng(1))
        arrays = {name: cuda_on_cpu.as_bits(one, self.dtype) for name, one in given.items()}
        known = {
            name: cuda_on_cpu.as_floats(one, self.dtype).reshape(given[name].shape)
            for name, one in arrays.items()
        }
        expected = self.reference(known)
        arrays["out"] = cuda_on_cpu.as_bits(np.zeros(expected.shape), self.out)
        worst = 0.0
        with tempfile.TemporaryDirectory() as folder:
            for reverse in (False, True):
                arrays["out"][...] = 0
                cuda_on_cpu.run(source, mod, arrays, Path(folder), reverse=reverse)
                found = cuda_on_cpu.as_floats(arrays["out"], self.out).reshape(expected.shape)
                worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
        return worst if np.isfinite(worst) else float("inf")


def _kinds(*, small: bool) -> tuple[AttentionKind, ...]:
    def of(large: tuple[int, ...], less: tuple[int, ...]) -> Any:
        return less if small else large

    bf16: dict[str, Any] = {"dtype": "bfloat16", "out": "bfloat16"}
    full: dict[str, Any] = {"dtype": "float32", "out": "float32"}
    return (
        AttentionKind(name="attention", shape=of((1, 12, 128, 128, 64), (1, 2, 40, 70, 64))),
        AttentionKind(
            name="attention-packed", shape=of((1, 8, 1500, 1500, 64), (1, 2, 37, 37, 32)), packed=True
        ),
        AttentionKind(
            name="attention-causal", shape=of((1, 12, 1024, 1024, 64), (1, 1, 70, 70, 32)), causal=0
        ),
        AttentionKind(
            name="attention-masked", shape=of((4, 16, 384, 384, 64), (2, 1, 33, 50, 48)), masked="rows"
        ),
        AttentionKind(
            name="attention-40", shape=of((1, 8, 4096, 4096, 40), (1, 2, 20, 66, 40)), out="float32"
        ),
        AttentionKind(name="attention-128", shape=of((1, 32, 2048, 2048, 128), (1, 1, 20, 34, 128))),
        AttentionKind(
            name="attention-bf16", shape=of((1, 32, 512, 512, 128), (1, 1, 35, 35, 64)), causal=0, **bf16
        ),
        AttentionKind(
            name="attention-bf16-keys",
            shape=of((4, 12, 77, 77, 80), (2, 1, 18, 18, 80)),
            masked="keys",
            **bf16,
        ),
        AttentionKind(
            name="attention-tf32", shape=of((1, 12, 128, 128, 64), (1, 1, 20, 70, 64)), tf32=True, **full
        ),
        AttentionKind(
            name="attention-tf32-128",
            shape=of((1, 16, 512, 600, 128), (1, 1, 20, 40, 112)),
            tf32=True,
            causal=20,
            masked="keys",
            **full,
        ),
        AttentionKind(name="attention-fp32", shape=of((1, 12, 128, 128, 64), (1, 1, 40, 70, 64)), **full),
        AttentionKind(
            name="attention-fp32-128",
            shape=of((1, 16, 197, 250, 128), (1, 1, 20, 70, 128)),
            masked="rows",
            **full,
        ),
        AttentionKind(
            name="attention-fp32-36",
            shape=of((2, 8, 333, 333, 36), (2, 1, 20, 20, 36)),
            causal=0,
            packed=True,
            **full,
        ),
    )


ATTENTIONS = _kinds(small=False)
#: The same kinds, small enough for a processor that plays a GPU.
SMALL_ATTENTIONS = _kinds(small=True)
