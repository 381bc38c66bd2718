"""A bfloat16 dot product in plain vector arithmetic, which every processor has."""

from __future__ import annotations

from wmsched.relax.int8.dots import PAIRS, ROUND, Dot

ROUNDING = """
define linkonce_odr {bits} @{name}({real} %value) #0 {{
  %whole = bitcast {real} %value to {wide}
  %high = lshr {wide} %whole, {sixteen}
  %odd = and {wide} %high, {one}
  %half = add {wide} %odd, {below}
  %moved = add {wide} %whole, %half
  %kept = lshr {wide} %moved, {sixteen}
  %found = trunc {wide} %kept to {bits}
  ret {bits} %found
}}
"""


def _all(value: int, lanes: int) -> str:
    return f"<{', '.join([f'i32 {value}'] * lanes)}>" if lanes > 1 else str(value)


def _rounding(lanes: int) -> str:
    real, wide, bits = (f"<{lanes} x {each}>" if lanes > 1 else each for each in ("float", "i32", "i16"))
    numbers = {"sixteen": 16, "one": 1, "below": 0x7FFF}
    constants = {name: _all(value, lanes) for name, value in numbers.items()}
    return ROUNDING.format(name=ROUND.format(lanes), real=real, wide=wide, bits=bits, **constants)


PAIRED = f"""
define linkonce_odr <16 x float> @{PAIRS}(<16 x float> %sums, <16 x i32> %data, <16 x i32> %weights) #0 {{
  %low = shl <16 x i32> %data, {_all(16, 16)}
  %low2 = shl <16 x i32> %weights, {_all(16, 16)}
  %high = and <16 x i32> %data, {_all(-65536, 16)}
  %high2 = and <16 x i32> %weights, {_all(-65536, 16)}
  %a = bitcast <16 x i32> %low to <16 x float>
  %b = bitcast <16 x i32> %low2 to <16 x float>
  %c = bitcast <16 x i32> %high to <16 x float>
  %d = bitcast <16 x i32> %high2 to <16 x float>
  %ab = fmul <16 x float> %a, %b
  %cd = fmul <16 x float> %c, %d
  %both = fadd <16 x float> %ab, %cd
  %found = fadd <16 x float> %sums, %both
  ret <16 x float> %found
}}
attributes #0 = {{ alwaysinline nounwind }}
"""

PLAIN = Dot(
    "plain",
    16,
    2,
    code="".join(map(_rounding, (1, 2, 4, 8, 16))) + PAIRED,
)
