"""Programs of every kind that tensor cores are tuned for, with what they compute in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["KINDS", "SMALL", "Kind"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Kind of product.

    Parameters
    ----------
    name : str
    shape : tuple of int
        batch, rows, columns, terms of a product; images, channels in, channels out, height and width, kernel,
        stride of a convolution.
    dtype, out : str
        Of the operands and of the output; sums are float32. Operands of float32 are multiplied as TF32.
    transposed : bool
        Whether the second operand lies with its rows along the sum, as a dense layer's weights do.
    layout : str
        "" for a product; "NCHW" or "NHWC" for a convolution.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float16"
    out: str = "float16"
    transposed: bool = False
    layout: str = ""

    def function(self) -> Any:
        """Return the TensorIR function."""
        from tvm import te

        operands, result = self._convolution() if self.layout else self._product()
        out = self.out
        cast = te.compute(result.shape, lambda *at: result(*at).astype(out), name="D")
        return te.create_prim_func([*operands, cast if out != "float32" else result])

    def _product(self) -> tuple[list[Any], Any]:
        from tvm import te

        batch, m, n, k = self.shape
        ahead = (batch,) if batch > 1 else ()
        a = te.placeholder((*ahead, m, k), self.dtype, "A")
        b = te.placeholder((*ahead, n, k) if self.transposed else (*ahead, k, n), self.dtype, "B")
        r = te.reduce_axis((0, k), "k")

        def element(*at: Any) -> Any:
            *z, i, j = at
            one, other = a(*z, i, r), b(*z, j, r) if self.transposed else b(*z, r, j)
            return te.sum(one.astype("float32") * other.astype("float32"), axis=r)

        return [a, b], te.compute((*ahead, m, n), element, name="C")

    def _convolution(self) -> tuple[list[Any], Any]:
        from tvm import te, topi

        images, channels, out, size, kernel, stride = self.shape
        first = self.layout == "NCHW"
        a = te.placeholder(
            (images, channels, size, size) if first else (images, size, size, channels), self.dtype, "A"
        )
        w = te.placeholder(
            (out, channels, kernel, kernel) if first else (kernel, kernel, channels, out), self.dtype, "B"
        )
        convolve = topi.nn.conv2d_nchw if first else topi.nn.conv2d_nhwc
        return [a, w], convolve(a, w, stride, kernel // 2, 1, out_dtype="float32")

    def reference(self, a: Any, b: Any) -> Any:
        """Return the outputs of float32 arrays, in float32."""
        if not self.layout:
            return a @ (b.swapaxes(-1, -2) if self.transposed else b)
        import torch

        if self.layout == "NHWC":
            a, b = a.transpose(0, 3, 1, 2), b.transpose(3, 2, 0, 1)
        images = [torch.from_numpy(np.ascontiguousarray(one)) for one in (a, b)]
        *_, kernel, stride = self.shape
        found = torch.nn.functional.conv2d(*images, stride=stride, padding=kernel // 2).numpy()
        return found.transpose(0, 2, 3, 1) if self.layout == "NHWC" else found

    @property
    def flops(self) -> float:
        if not self.layout:
            batch, m, n, k = self.shape
            return 2.0 * batch * m * n * k
        images, channels, out, size, kernel, stride = self.shape
        return 2.0 * images * channels * out * (size // stride) ** 2 * kernel**2


KINDS = (
    Kind(name="dense", shape=(1, 128, 768, 768), transposed=True),
    Kind(name="dense-bf16", shape=(1, 128, 768, 768), dtype="bfloat16", out="bfloat16", transposed=True),
    Kind(name="product", shape=(1, 512, 512, 512), out="float32"),
    Kind(name="product-bf16", shape=(1, 512, 512, 512), dtype="bfloat16", out="float32"),
    Kind(name="odd", shape=(1, 197, 1000, 328), transposed=True),  # 16 divides no extent
    Kind(name="scores", shape=(12, 128, 128, 64), transposed=True),  # of an attention
    Kind(name="scores-bf16", shape=(12, 128, 128, 64), dtype="bfloat16", out="bfloat16", transposed=True),
    Kind(name="values", shape=(12, 128, 64, 128)),
    Kind(name="conv-nchw", shape=(1, 128, 128, 28, 3, 1), layout="NCHW"),
    Kind(name="conv-nhwc", shape=(1, 128, 128, 28, 3, 1), layout="NHWC"),
    Kind(
        name="conv-nhwc-bf16", shape=(1, 128, 128, 28, 3, 2), dtype="bfloat16", out="bfloat16", layout="NHWC"
    ),
    Kind(name="conv-1x1", shape=(1, 256, 64, 56, 1, 1), layout="NHWC"),
    Kind(name="dense-tf32", shape=(1, 128, 768, 768), dtype="float32", out="float32", transposed=True),
    Kind(name="conv-nhwc-tf32", shape=(1, 128, 128, 28, 3, 1), dtype="float32", out="float32", layout="NHWC"),
)


#: The same kinds, small enough for a processor that plays a GPU.
SMALL = (
    Kind(name="dense", shape=(1, 64, 64, 64), transposed=True),
    Kind(name="dense-bf16", shape=(1, 64, 64, 64), dtype="bfloat16", out="bfloat16", transposed=True),
    Kind(name="product", shape=(1, 32, 96, 64), out="float32"),
    Kind(name="odd", shape=(1, 49, 100, 72), transposed=True),
    Kind(name="scores", shape=(4, 48, 64, 32), transposed=True),
    Kind(name="values-bf16", shape=(4, 48, 32, 64), dtype="bfloat16", out="bfloat16"),
    Kind(name="conv-nchw", shape=(1, 16, 32, 14, 3, 1), layout="NCHW"),
    Kind(name="conv-nhwc", shape=(1, 16, 32, 14, 3, 2), layout="NHWC"),
    Kind(name="conv-1x1-bf16", shape=(2, 32, 64, 7, 1, 1), dtype="bfloat16", out="bfloat16", layout="NHWC"),
    Kind(name="dense-tf32", shape=(1, 64, 64, 64), dtype="float32", out="float32", transposed=True),
    Kind(name="product-tf32", shape=(1, 49, 96, 40), dtype="float32", out="float32"),
    Kind(name="conv-nhwc-tf32", shape=(1, 16, 32, 14, 3, 2), dtype="float32", out="float32", layout="NHWC"),
)
