"""Emission of a rewritten function: kernels and Relax operators on eight-bit tensors with channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from wmsched.relax.int8.depthwise import depthwise_kernel
from wmsched.relax.int8.dots import Dot
from wmsched.relax.int8.facts import (
    TO_FIRST,
    TO_LAST,
    Chain,
    Eight,
    Gated,
    Joined,
    Means,
    Parts,
    Real,
    Shape,
    Sums,
    Twin,
    last,
    permuted,
)
from wmsched.relax.int8.finish import LARGEST, Finish, Residual
from wmsched.relax.int8.geometry import Geometry, blocking
from wmsched.relax.int8.images import image_kernel, largest_kernel, mean_kernel
from wmsched.relax.int8.product import product_kernel
from wmsched.relax.int8.tables import gate_kernel, table_kernel
from wmsched.relax.int8.weights import offsets, packed, packed_depthwise, padded_columns

MAX_BIAS_ERROR = 1e-3  # steps of the result by which a bias in whole steps of the sums may differ


class Emitter:
    """Writer of the new function.

    Parameters
    ----------
    builder : relax.BlockBuilder
    dot : Dot
    threads : int
    permuted : bool
        Whether the target permutes bytes of two registers.
    """

    def __init__(self, builder: Any, dot: Dot, threads: int, permuted: bool = False) -> None:
        self.builder, self.dot, self.threads, self.permuted = builder, dot, threads, permuted

    def emit(self, expression: Any) -> Any:
        """Emit an expression; return its variable."""
        return self.builder.emit(expression)

    def quantized(self, data: Any, scale: float, zero: int) -> Any:
        """Emit a quantization to unsigned numbers."""
        return self.emit(
            relax.op.quantize(
                data, relax.const(scale, "float32"), relax.const(zero, "uint8"), -1, out_dtype="uint8"
            )
        )

    def real(self, eight: Eight) -> Any:
        """Emit the float32 values of an `Eight`, with channels last."""
        scale, zero = relax.const(eight.scale, "float32"), relax.const(eight.zero, "uint8")
        return self.emit(relax.op.dequantize(eight.var, scale, zero, -1))

    def numbers(self, eight: Eight) -> Any:
        """Emit an `Eight` as the model has it: with channels first, and signed again."""
        data = permuted(self.builder, eight.var, TO_FIRST)
        if not eight.signed:
            return data
        wide = self.emit(relax.op.astype(data, "int16"))
        return self.emit(
            relax.op.astype(self.emit(relax.op.subtract(wide, relax.const(128, "int16"))), "int8")
        )

    def twin(self, fact: Any) -> Any:
        """Emit a fact's float32 values, with channels last."""
        if isinstance(fact, Twin):
            return fact.var
        if isinstance(fact, Real):
            return self.real(fact.eight)
        if isinstance(fact, Chain):
            return fact.make()
        if isinstance(fact, Gated):
            return self.emit(relax.op.multiply(self.real(fact.data), self.looked_up(fact.gate)))
        if isinstance(fact, Sums):
            return self.product(fact, None, None)
        if isinstance(fact, Means):
            return self.mean(fact, None)
        if isinstance(fact, Joined):
            return self.bounded(
                self.emit(relax.op.add(self.real(fact.left), self.real(fact.right))), fact.low, fact.high
            )
        if isinstance(fact, Parts):
            parts = [self.real(part) for part in fact.parts]
            return self.emit(relax.op.concat(parts, axis=len(fact.shape) - 1))
        raise TypeError(f"{type(fact).__name__} is no float32")

    def bounded(self, data: Any, low: float | None, high: float | None) -> Any:
        """Emit bounds of a float32 tensor."""
        if low is not None:
            data = self.emit(relax.op.maximum(data, relax.const(low, "float32")))
        return data if high is None else self.emit(relax.op.minimum(data, relax.const(high, "float32")))

    def call(self, kernel: Any, arguments: Sequence[Any], shape: Shape, dtype: str) -> Any:
        """Emit a call of a kernel."""
        name = str(kernel.attrs["global_symbol"]) if "global_symbol" in kernel.attrs else "int8"
        function = self.builder.add_func(kernel.without_attr("global_symbol"), name)
        found = [relax.const(each) if isinstance(each, np.ndarray) else each for each in arguments]
        return self.emit(relax.call_tir(function, found, relax.TensorType(shape, dtype)))

    def product(self, sums: Sums, to: tuple[float, int] | None, residual: tuple[Eight, Finish] | None) -> Any:
        """Emit a product with its rounding.

        Parameters
        ----------
        to : (float, int), optional
            Scale and zero point of the result; by default it is float32.
        residual : (Eight, Finish), optional
            What is added after, and the steps that do so.
        """
        steps, bias, factor, shift = self.steps(sums, to)
        if residual is not None:
            steps = residual[1]
        flat = sums.weights.reshape(sums.weights.shape[0], -1)
        whole = bias + offsets(flat, sums.data.zero)
        result, given = last(sums.shape), last(sums.data.shape)
        if sums.depthwise:
            kernel = depthwise_kernel(sums.geometry, steps, self.dot, given, result)
            weights: NDArray[Any] = packed_depthwise(flat, sums.geometry.kernel, self.dot)
        else:
            kernel = product_kernel(sums.geometry, steps, self.dot, self.threads, given, result)
            depth = blocking(sums.geometry, self.dot, self.threads).depth
            weights = packed(flat, self.dot, depth)
        arguments = [
            sums.data.var,
            weights,
            padded_columns(whole.astype(np.int32)),
            padded_columns(factor.astype(np.float32)),
        ]
        if steps.shifted:
            arguments.append(padded_columns(shift.astype(np.float32)))
        if residual is not None:
            arguments.append(residual[0].var)
        return self.call(kernel, arguments, result, "uint8" if steps.quantized else "float32")

    def steps(
        self, sums: Sums, to: tuple[float, int] | None
    ) -> tuple[Finish, NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the finish of a product, and its whole bias, factor and shift for each column."""
        step = sums.data.scale * sums.scales
        factor = step if to is None else step / to[0]
        real = np.zeros(len(step)) if sums.bias is None else sums.bias
        exact = real / step
        bias, shift = np.rint(exact).astype(np.int64), np.zeros(len(step))
        limit = (1 << 31) - 1 - sums.geometry.depth * LARGEST * 128
        relative = MAX_BIAS_ERROR * (1 if to is not None else float(np.abs(factor).min()))
        if (np.abs(exact - bias) * np.abs(factor) > relative).any() or (np.abs(exact) > limit).any():
            bias, shift = np.zeros(len(step), np.int64), real if to is None else real / to[0]
        shifted = bool(shift.any())
        if to is None:
            return (
                Finish(quantized=False, shifted=shifted, low=sums.low, high=sums.high),
                bias,
                factor,
                shift,
            )
        low, high = bounds(to, sums.low, sums.high)
        return Finish(shifted=shifted, low=low, high=high, zero=to[1]), bias, factor, shift

    def joined(self, own: Eight, other: Eight, joined: Joined, to: tuple[float, int]) -> Any:
        """Emit the product that `own` is of, with `other` added in its kernel."""
        assert own.sums is not None
        first, *_ = self.steps(own.sums, (own.scale, own.zero))
        low, high = bounds(to, joined.low, joined.high)
        steps = Finish(
            shifted=first.shifted,
            low=first.low,
            high=first.high,
            zero=to[1],
            residual=Residual(
                own=own.scale / to[0],
                other=other.scale / to[0],
                constant=-other.zero * other.scale / to[0],
            ),
            last_low=low,
            last_high=high,
        )
        return self.product(own.sums, (own.scale, own.zero), (other, steps))

    def mean(self, means: Means, to: tuple[float, int] | None) -> Any:
        """Emit the mean of each channel."""
        given = last(means.data.shape)
        pixels = math.prod(given[1:-1])
        result = last(means.shape)
        scale = means.data.scale / pixels / (1.0 if to is None else to[0])
        if to is None:
            steps = Finish(quantized=False)
        else:
            low, high = bounds(to, None, None)
            steps = Finish(low=low, high=high, zero=to[1])
        constants = (-means.data.zero * pixels, scale)
        kernel = mean_kernel(pixels, steps, given, result, constants)
        return self.call(kernel, [means.data.var], result, "float32" if to is None else "uint8")

    def image(self, data: Any, to: tuple[float, int], shape: Shape) -> Any:
        """Emit the quantization of float32 images that have their channels first."""
        return self.call(image_kernel(shape, *to), [data], last(shape), "uint8")

    def looked_up(self, chain: Chain, codes: NDArray[np.uint8] | None = None) -> Any:
        """Emit a function of a quantized tensor, as its numbers or as those of a table."""
        table = chain.values if codes is None else codes
        shape, dtype = last(chain.shape), str(table.dtype)
        return self.call(table_kernel(shape, dtype, self.permuted), [chain.root.var, table], shape, dtype)

    def gated(self, gated: Gated, to: tuple[float, int]) -> Any:
        """Emit images scaled by a number for each channel."""
        shape = last(gated.shape)
        kernel = gate_kernel(shape, gated.data.zero, gated.data.scale / to[0], to[1])
        return self.call(kernel, [gated.data.var, self.looked_up(gated.gate)], shape, "uint8")

    def largest(self, data: Eight, geometry: Geometry, shape: Shape) -> Any:
        """Emit a maximum over windows."""
        result = last(shape)
        kernel = largest_kernel(geometry, last(data.shape), result)
        return self.call(kernel, [data.var], result, "uint8")

    def concatenated(self, parts: Parts, to: tuple[float, int]) -> Any:
        """Emit a concatenation in the steps of the result."""
        found = [
            part.var if part.same_steps(*to) else self.quantized(self.real(part), *to) for part in parts.parts
        ]
        return self.emit(relax.op.concat(found, axis=len(parts.shape) - 1))

    def reshaped(self, data: Eight, shape: Shape) -> Any:
        """Emit a reshape of the tensor as the model has it."""
        source, given = data.var, data.shape
        if len(given) == 4 and given[1] != 1 and math.prod(given[2:]) != 1:
            source = permuted(self.builder, source, TO_FIRST)
        if len(shape) == 4 and shape[1] != 1 and math.prod(shape[2:]) != 1:
            return permuted(self.builder, self.emit(relax.op.reshape(source, shape)), TO_LAST)
        return self.emit(relax.op.reshape(source, last(shape)))


def bounds(to: tuple[float, int], low: float | None, high: float | None) -> tuple[float, float]:
    """Return the bounds of a result in its steps, less its zero point: of eight bits, and those given."""
    scale, zero = to
    least, most = -float(zero), float(LARGEST - zero)
    if low is not None:
        least = min(max(least, float(np.rint(low / scale))), most)
    if high is not None:
        most = max(min(most, float(np.rint(high / scale))), least)
    return least, most
