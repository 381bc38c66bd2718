"""bfloat16 dot products of x86 processors: AMX's tiles and `vdpbf16ps`, and float32 rounded for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.relax.int8.dots import PAIRS, ROUND, Dot, dot_of

ROUNDED = """
define linkonce_odr {bits} @{name}({real} %value) #0 {{
  %short = fptrunc {real} %value to {short}
  %bits = bitcast {short} %short to {bits}
  ret {bits} %bits
}}
"""


def _rounding(lanes: int) -> str:
    real, short, bits = (f"<{lanes} x {each}>" if lanes > 1 else each for each in ("float", "bfloat", "i16"))
    return ROUNDED.format(name=ROUND.format(lanes), real=real, short=short, bits=bits)


#: LLVM's, because TVM 0.27 turns bfloat16 operands of its intrinsics into float32.
CODE = (
    "".join(map(_rounding, (1, 2, 4, 8)))
    + f"""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
declare <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float>)
define linkonce_odr <16 x i16> @{ROUND.format(16)}(<16 x float> %value) #0 {{
  %short = call <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float> %value)
  %bits = bitcast <16 x bfloat> %short to <16 x i16>
  ret <16 x i16> %bits
}}
define linkonce_odr <16 x float> @{PAIRS}(<16 x float> %sums, <16 x i32> %data, <16 x i32> %weights) #0 {{
  %left = bitcast <16 x i32> %data to <32 x bfloat>
  %right = bitcast <16 x i32> %weights to <32 x bfloat>
  %found = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(
      <16 x float> %sums, <32 x bfloat> %left, <32 x bfloat> %right)
  ret <16 x float> %found
}}
attributes #0 = {{ alwaysinline nounwind }}
"""
)
VECTORS = {"avx512f": "avx512f", "avx512bf16": "avx512_bf16", "avx512bw": "avx512bw", "avx512vl": "avx512vl"}
#: Best first, with LLVM's features that each needs, and the names of those in /proc/cpuinfo.
BFLOAT16_DOTS: tuple[tuple[Dot, dict[str, str]], ...] = (
    (
        Dot("amx-bf16", 16, 2, amx=True, code=CODE),
        {"amx-tile": "amx_tile", "amx-bf16": "amx_bf16", **VECTORS},
    ),
    (Dot("avx512-bf16", 16, 2, code=CODE), VECTORS),
)


def bfloat16_dot(target: Any) -> Dot | None:
    """Return the best bfloat16 dot product of a target; None where it has none."""
    return dot_of(target, BFLOAT16_DOTS)


def instructions(target: Any) -> list[str]:
    """Return the names in /proc/cpuinfo of what a target's bfloat16 kernels need; [] without such."""
    dot = bfloat16_dot(target)
    return sorted({name for kind, needs in BFLOAT16_DOTS if kind == dot for name in needs.values()})


def bits_of(values: NDArray[np.floating]) -> NDArray[np.uint16]:
    """Return the bits of bfloat16, rounded to even, of an array."""
    whole = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    found = ((whole + 0x7FFF + ((whole >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), found)
