"""Options of ``wmsched compile`` and ``wmsched tune`` that say how products and convolutions are computed."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Bfloat16", "DepthwiseKernels", "Winograd"]

Bfloat16 = Annotated[
    bool,
    typer.Option(
        "--bf16",
        help="Compute matrix products and convolutions in bfloat16, by AMX or AVX512-BF16 (CPU).",
    ),
]
Winograd = Annotated[
    bool,
    typer.Option(
        "--winograd/--no-winograd",
        help="Compute 3x3 convolutions by Winograd where that is expected to be faster (CPU).",
    ),
]
DepthwiseKernels = Annotated[
    bool,
    typer.Option(
        "--depthwise-kernels/--no-depthwise-kernels",
        help="Compute depthwise convolutions by kernels with one schedule instead of searched ones (CPU).",
    ),
]
