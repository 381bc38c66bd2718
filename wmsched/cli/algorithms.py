"""Options that ``wmsched compile`` and ``wmsched tune`` share: how products are computed, and states."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "AttentionKernels",
    "Bfloat16",
    "DepthwiseKernels",
    "Half",
    "ProductKernels",
    "States",
    "Winograd",
]

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
ProductKernels = Annotated[
    bool,
    typer.Option(
        "--product-kernels/--no-product-kernels",
        help="Compute products and convolutions by kernels with one schedule where that is expected to be "
        "faster (CPU).",
    ),
]
AttentionKernels = Annotated[
    bool,
    typer.Option(
        "--attention-kernels/--no-attention-kernels",
        help="Compute attention as one kernel, with no scores of all rows in memory (CPU, --target cuda).",
    ),
]
Half = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="Products of a float32 model in float16, bfloat16 or tf32, with sums in float32 (--target cuda, "
        "model files). Default: as the model has them.",
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        help="An input that the next call takes from this call's output: INPUT=OUTPUT, by name or number. "
        "Repeatable. Default: past_* and present_*; none: no input.",
    ),
]
