"""Functions of one quantized tensor, as tables of its 256 values; and images scaled by a gate a channel.

Between two quantizations, activations such as SiLU and GELU are functions of one eight-bit number. A table of
their results replaces the arithmetic, and with AVX512-VBMI 64 numbers are looked up at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.facts import Chain, Eight, Real
from wmsched.relax.int8.finish import LARGEST, MAGIC, kind, pieces, span, spread
from wmsched.relax.int8.product import kernel, named

VALUES = 256
PERMUTED = 64  # bytes that are looked up at once
TASK_BYTES = 4096  # that one iteration of the parallel loop looks up
LANES = 16  # numbers that are scaled at once
PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"
Values = NDArray[np.float32]


def _erf(x: Values) -> Values:
    return np.array([math.erf(each) for each in x], np.float32)


def _sigmoid(x: Values) -> Values:
    return np.reciprocal(1 + np.exp(-x))


#: Values of an operator from those of its operands and from its attributes.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "relax.abs": lambda attrs, x: np.abs(x),
    "relax.add": lambda attrs, x, y: x + y,
    "relax.clip": lambda attrs, x, low, high: np.clip(x, low, high),
    "relax.divide": lambda attrs, x, y: x / y,
    "relax.erf": lambda attrs, x: _erf(x),
    "relax.exp": lambda attrs, x: np.exp(x),
    "relax.maximum": lambda attrs, x, y: np.maximum(x, y),
    "relax.minimum": lambda attrs, x, y: np.minimum(x, y),
    "relax.multiply": lambda attrs, x, y: x * y,
    "relax.negative": lambda attrs, x: -x,
    "relax.nn.gelu": lambda attrs, x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "relax.nn.leakyrelu": lambda attrs, x: np.where(x > 0, x, x * float(attrs.alpha)),
    "relax.nn.relu": lambda attrs, x: np.maximum(x, 0),
    "relax.nn.relu6": lambda attrs, x: np.clip(x, 0, 6),
    "relax.nn.silu": lambda attrs, x: x * _sigmoid(x),
    "relax.sigmoid": lambda attrs, x: _sigmoid(x),
    "relax.sqrt": lambda attrs, x: np.sqrt(x),
    "relax.subtract": lambda attrs, x, y: x - y,
    "relax.tanh": lambda attrs, x: np.tanh(x),
}


def values_of(name: str, attrs: Any, operands: Sequence[Any]) -> Values | None:
    """Return the float32 [256] of an operator; None for another operator, or if some value is no number.

    Parameters
    ----------
    operands : sequence of float32 [256] or float
    """
    function = FUNCTIONS.get(name)
    if function is None:
        return None
    with np.errstate(all="ignore"):
        found = np.asarray(function(attrs, *(np.float32(each) for each in operands)), np.float32)
    return None if found.shape != (VALUES,) or np.isnan(found).any() else found


def numbers_of(fact: Any) -> tuple[Eight, Values] | None:
    """Return the tensor that a fact is a function of, and its values; None for another fact."""
    if isinstance(fact, Chain):
        return fact.root, fact.values
    if not isinstance(fact, Real):
        return None
    root, codes = fact.eight.looked_up or (fact.eight, np.arange(VALUES))
    return root, (codes.astype(np.float32) - fact.eight.zero) * np.float32(fact.eight.scale)


def codes_of(values: Values, scale: float, zero: int) -> NDArray[np.uint8]:
    """Return the uint8 [256] that values are quantized to, as ONNX's QuantizeLinear does."""
    with np.errstate(over="ignore"):
        steps = np.rint(values / np.float32(scale)) + zero
    return np.clip(steps, 0, LARGEST).astype(np.uint8)


def table_kernel(shape: tuple[int, ...], dtype: str, permuted: bool) -> Any:
    """Return the function (data, table, result) of a look-up in uint8 or float32 [256].

    Parameters
    ----------
    permuted : bool
        Whether the target permutes bytes of two registers (AVX512-VBMI).
    """
    total = math.prod(shape)

    def write(flat: dict[str, Any]) -> None:
        data, table, result = flat["data"], flat["table"], flat["result"]
        whole = total // PERMUTED if permuted and dtype == "uint8" else 0
        if whole:
            turns = -(-TASK_BYTES // PERMUTED)
            with (
                T.parallel(0, -(-whole // turns)) as task,
                T.serial(0, T.min(turns, whole - task * turns)) as turn,
            ):
                place = (task * turns + turn) * PERMUTED
                T.buffer_store(result, _permuted(table, data, place), [span(place, PERMUTED)])
            _each(whole * PERMUTED, total - whole * PERMUTED, data, table, result)
        else:
            each = TASK_BYTES if total > TASK_BYTES else total
            with T.parallel(0, -(-total // each)) as task:
                _each(task * each, T.min(each, total - task * each), data, table, result)

    wanted = {"data": (shape, "uint8"), "table": ((VALUES,), dtype), "result": (shape, dtype)}
    return kernel("int8_table", wanted, write)


def _each(start: Any, extent: Any, data: Any, table: Any, result: Any) -> None:
    if isinstance(extent, int) and not extent:
        return
    with T.serial(0, extent) as k:
        T.buffer_store(result, table[T.cast(data[start + k], "int32")], [start + k])


def _permuted(table: Any, data: Any, place: Any) -> Any:
    """Look 64 bytes up: each permutation reads 128 entries by an index's low bits, its top bit chooses."""
    kind, signed = f"uint8x{PERMUTED}", f"int8x{PERMUTED}"
    index = data.vload([place], kind)

    def half(first: int) -> Any:
        parts = [T.reinterpret(signed, table.vload([first + k * PERMUTED], kind)) for k in range(2)]
        return T.call_llvm_pure_intrin(signed, PERMUTE, parts[0], T.reinterpret(signed, index), parts[1])

    upper = index >= T.broadcast(T.uint8(VALUES // 2), PERMUTED)
    return T.reinterpret(kind, T.Select(upper, half(VALUES // 2), half(0)))


def gate_kernel(shape: tuple[int, ...], zero: int, factor: float, to: int) -> Any:
    """Return the function (data, gate, result) of images times a float32 for each channel, quantized.

    Parameters
    ----------
    shape : (batch, height, width, channels)
    zero, to : int
        Zero points of the data and of the result.
    factor : float
        Step of the data over that of the result.
    """
    batch, height, width, channels = shape

    def write(flat: dict[str, Any]) -> None:
        with T.parallel(0, batch * height) as line:
            scaled = named("scaled", T.alloc_buffer((channels,), "float32"))

            def scale(start: Any, lanes: int) -> None:
                value = flat["gate"].vload([line // height * channels + start], kind("float32", lanes))
                T.buffer_store(scaled, value * spread(T.float32(factor), lanes), [span(start, lanes)])

            def finish(start: Any, lanes: int, pixel: Any) -> None:
                place = pixel * channels + start
                number = T.cast(flat["data"].vload([place], kind("uint8", lanes)), kind("float32", lanes))
                value = T.fma(
                    number - spread(T.float32(zero), lanes),
                    scaled.vload([start], kind("float32", lanes)),
                    spread(T.float32(MAGIC), lanes),
                )
                value = T.max(value, spread(T.float32(MAGIC - to), lanes))
                value = T.min(value, spread(T.float32(MAGIC + LARGEST - to), lanes))
                steps = T.reinterpret(kind("int32", lanes), value) + spread(T.int32(to), lanes)
                T.buffer_store(flat["result"], T.cast(steps, kind("uint8", lanes)), [span(place, lanes)])

            _along(channels, scale)
            with T.serial(0, width) as x:
                _along(channels, lambda start, lanes: finish(start, lanes, line * width + x))

    gate = (batch, 1, 1, channels)
    wanted = {"data": (shape, "uint8"), "gate": (gate, "float32"), "result": (shape, "uint8")}
    return kernel("int8_gate", wanted, write)


def _along(extent: int, write: Callable[[Any, int], None]) -> None:
    whole = extent // LANES
    if whole:
        with T.serial(0, whole) as turn:
            write(turn * LANES, LANES)
    for start, lanes in pieces(extent - whole * LANES, LANES):
        write(T.int32(whole * LANES + start), lanes)
