"""What becomes of the sums of a kernel: scaled, rounded to even, clamped, with a residual added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.dots import ROUND

#: A float32 of this size has no fraction: adding it rounds to even, and the sum's low bits are the integer.
MAGIC = 12582912.0  # 1.5 * 2^23
LARGEST = 255  # of eight bits


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Second summand of a quantized sum, an unsigned tensor of the result's shape.

    In steps of the result: ``own * rounded sums + other * residual + constant``.
    """

    own: float
    other: float
    constant: float


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Steps after the sums.

    Parameters
    ----------
    quantized : bool
        Whether the result is uint8, else float32.
    shifted : bool
        Whether a float32 for each column is added after scaling.
    low, high : float
        Bounds of the scaled sums, in steps of the result less its zero point; for float32 as they are.
    zero : int
        Zero point of the result.
    residual : Residual, optional
        Added after the sums are rounded; then `last_low`, `last_high` and `last_zero` are the result's.
    """

    quantized: bool = True
    shifted: bool = False
    low: float | None = None
    high: float | None = None
    zero: int = 0
    residual: Residual | None = None
    last_low: float = 0.0
    last_high: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RealFinish:
    """Steps after float32 sums, which began with the bias.

    Parameters
    ----------
    low, high : float, optional
        Bounds of the sums.
    residual : bool
        Whether a float32 tensor of the result's shape is added to them.
    last_low, last_high : float, optional
        Bounds of what that gives.
    rounded : bool
        Whether the result is bfloat16, as its bits.
    """

    low: float | None = None
    high: float | None = None
    residual: bool = False
    last_low: float | None = None
    last_high: float | None = None
    rounded: bool = False


@dataclass
class Columns:
    """Arguments of a kernel that its finish reads and writes, as flat buffers."""

    factor: Any
    shift: Any
    residual: Any
    result: Any


def spread(number: Any, lanes: int) -> Any:
    """Return a number of TIR as a vector, or itself for one lane."""
    return T.broadcast(number, lanes) if lanes > 1 else number


def _lanes(value: float, lanes: int) -> Any:
    return spread(T.float32(value), lanes)


def kind(dtype: str, lanes: int) -> str:
    """Return the type of a vector, or of a number."""
    return f"{dtype}x{lanes}" if lanes > 1 else dtype


def span(start: Any, lanes: int) -> Any:
    """Return the index of consecutive elements."""
    return T.ramp(start, 1, lanes) if lanes > 1 else start


def _clamped(value: Any, low: float | None, high: float | None, lanes: int) -> Any:
    if low is not None:
        value = T.max(value, _lanes(low, lanes))
    return value if high is None else T.min(value, _lanes(high, lanes))


def finish(
    steps: Finish | RealFinish, columns: Columns, sums: Any, lanes: int, column: Any, place: Any
) -> None:
    """Emit TIR that stores the results of `lanes` sums.

    Parameters
    ----------
    column, place
        Index of the first column, and of the first result.
    """
    if isinstance(steps, RealFinish):
        _finish_real(steps, columns, sums, lanes, place)
        return
    real = T.cast(sums, kind("float32", lanes))
    factor = columns.factor.vload([column], kind("float32", lanes))
    if not steps.quantized:
        shift = columns.shift.vload([column], kind("float32", lanes)) if steps.shifted else _lanes(0.0, lanes)
        value = _clamped(T.fma(real, factor, shift), steps.low, steps.high, lanes)
        T.buffer_store(columns.result, value, [span(place, lanes)])
        return
    if steps.shifted:
        value = T.fma(real, factor, columns.shift.vload([column], kind("float32", lanes)))
        value = value + _lanes(MAGIC, lanes)
    else:
        value = T.fma(real, factor, _lanes(MAGIC, lanes))
    low, high = (None if limit is None else MAGIC + limit for limit in (steps.low, steps.high))
    value = _clamped(value, low, high, lanes)
    if (residual := steps.residual) is not None:
        other = T.cast(columns.residual.vload([place], kind("uint8", lanes)), kind("float32", lanes))
        other = T.fma(other, _lanes(residual.other, lanes), _lanes(residual.constant, lanes))
        value = T.fma(value - _lanes(MAGIC, lanes), _lanes(residual.own, lanes), other) + _lanes(MAGIC, lanes)
        value = _clamped(value, MAGIC + steps.last_low, MAGIC + steps.last_high, lanes)
    whole = T.reinterpret(kind("int32", lanes), value)
    if steps.zero:
        whole = whole + spread(T.int32(steps.zero), lanes)
    T.buffer_store(columns.result, T.cast(whole, kind("uint8", lanes)), [span(place, lanes)])


def _finish_real(steps: RealFinish, columns: Columns, sums: Any, lanes: int, place: Any) -> None:
    value = _clamped(sums, steps.low, steps.high, lanes)
    if steps.residual:
        value = value + columns.residual.vload([place], kind("float32", lanes))
        value = _clamped(value, steps.last_low, steps.last_high, lanes)
    if steps.rounded:
        value = T.call_extern(kind("uint16", lanes), ROUND.format(lanes), value)
    T.buffer_store(columns.result, value, [span(place, lanes)])


def rounded(value: Any, scale: float, zero: int, lanes: int) -> Any:
    """Return TIR of float32 quantized to uint8."""
    scaled = _clamped(value / _lanes(scale, lanes), -float(zero), float(LARGEST - zero), lanes)
    whole = T.reinterpret(kind("int32", lanes), scaled + _lanes(MAGIC, lanes))
    zeros = spread(T.int32(zero), lanes)
    return T.cast(whole + zeros if zero else whole, kind("uint8", lanes))


def pieces(extent: int, most: int = 16) -> list[tuple[int, int]]:
    """Return start and length of the vectors that `extent` elements consist of, longest first."""
    found, start, length = [], 0, most
    while start < extent:
        while length > extent - start:
            length //= 2
        found.append((start, length))
        start += length
    return found
