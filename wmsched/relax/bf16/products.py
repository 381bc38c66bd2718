"""Products that bfloat16 pays for, each with the bias, bounds and residual that follow it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from wmsched.relax.bf16.batched import batched_kernel
from wmsched.relax.bf16.dots import bits_of
from wmsched.relax.int8.dots import Dot
from wmsched.relax.int8.finish import RealFinish
from wmsched.relax.int8.function import Handler, Rewrite
from wmsched.relax.int8.geometry import Geometry, blocking
from wmsched.relax.int8.operators import columns_of, limits_of, narrowed, replaced
from wmsched.relax.int8.product import product_kernel
from wmsched.relax.int8.weights import packed, padded_columns
from wmsched.relax.passes.wide_fusion import shape_of

MIN_PRODUCTS = 1 << 17  # multiplications of a kernel: less is done before its threads have begun
MIN_ROWS = 16  # of each product of two computed matrices: they pay for packing the right one
MAX_IDLE = 0.25  # share of the threads' time that an uneven number of such products may leave
MIN_DEPTH = MIN_OUTPUTS = 16  # of a product: with less of them tiles and vectors are mostly padding
ROUNDED = "uint16"  # bfloat16 numbers as their bits


@dataclass(eq=False)
class Product:
    """Convolution or product with constant weights whose kernel is not emitted yet.

    Parameters
    ----------
    data : Var
        Of the old function.
    shape : tuple of int
        Of the result, with the channels last.
    weights : float32 [outputs, depth]
    bias : float64 [outputs]
    residual : Var, optional
        Of the old function, added to the result.
    """

    data: Any
    shape: tuple[int, ...]
    geometry: Geometry
    weights: NDArray[np.float32]
    bias: NDArray[np.float64]
    low: float | None = None
    high: float | None = None
    residual: Any = None
    last_low: float | None = None
    last_high: float | None = None


@dataclass(eq=False)
class Batched:
    """Products of two computed tensors of matrices, `count` of them, whose kernel is not emitted yet.

    Parameters
    ----------
    left, right : Var
        Of the old function.
    geometry : Geometry
        Of one product.
    """

    left: Any
    right: Any
    shape: tuple[int, ...]
    count: int
    geometry: Geometry


class Products(Rewrite):
    """Rewrite of one function's products.

    Parameters
    ----------
    function : relax.Function
    builder : relax.BlockBuilder
    dot : Dot
        Of bfloat16.
    threads : int
    """

    def __init__(self, function: Any, builder: Any, dot: Dot, threads: int) -> None:
        super().__init__(function, builder, None, HANDLERS)
        self.dot, self.threads = dot, threads

    def first(self, variable: Any) -> Any:
        """Return the new function's variable for one of the old."""
        if variable not in self._first:
            fact = self.facts[variable]
            emitted = self._batched(fact) if isinstance(fact, Batched) else self._emitted(fact, rounded=False)
            self._first[variable] = emitted
        return self._first[variable]

    def _emitted(self, product: Product, *, rounded: bool) -> Any:
        data, own = self._operand(product.data)
        residual = [] if product.residual is None else [self.first(product.residual)]
        steps = RealFinish(
            low=product.low,
            high=product.high,
            residual=bool(residual),
            last_low=product.last_low,
            last_high=product.last_high,
            rounded=rounded,
        )
        shape, (dot, threads) = product.geometry, (self.dot, self.threads)
        given = tuple(map(int, data.ty.shape))
        kernel = product_kernel(shape, steps, dot, threads, given, product.shape, own)
        depth = blocking(shape, dot, threads, own).depth
        weights = relax.const(packed(bits_of(product.weights), dot, depth))
        bias = relax.const(padded_columns(product.bias.astype(np.float32)))
        result = relax.TensorType(product.shape, ROUNDED if rounded else "float32")
        return self._called(kernel, [data, weights, bias, *residual], result)

    def _batched(self, batched: Batched) -> Any:
        operands = [self.first(batched.left), self.first(batched.right)]
        left, right = (tuple(map(int, operand.ty.shape)) for operand in operands)
        kernel = batched_kernel(batched.count, batched.geometry, self.dot, (left, right), batched.shape)
        return self._called(kernel, operands, relax.TensorType(batched.shape, "float32"))

    def _called(self, kernel: Any, arguments: list[Any], result: Any) -> Any:
        name = str(kernel.attrs["global_symbol"])
        function = self.builder.add_func(kernel.without_attr("global_symbol"), name)
        return self.builder.emit(relax.call_tir(function, arguments, result))

    def _operand(self, variable: Any) -> tuple[Any, str]:
        """Return a product's data and their type: rounded where another one computes them for it alone."""
        fact = self.facts.get(variable)
        if not isinstance(fact, Product) or variable in self._first or self.uses.get(variable) != 1:
            return self.first(variable), "float32"
        return self._emitted(fact, rounded=True), ROUNDED


def pays(geometry: Geometry, count: int = 1) -> bool:
    """Whether products are computed in bfloat16: their multiplications are many enough, and fill vectors."""
    products = count * geometry.rows * geometry.depth * geometry.outputs
    return products >= MIN_PRODUCTS and geometry.depth >= MIN_DEPTH and geometry.outputs >= MIN_OUTPUTS


def _is_real(operand: Any) -> bool:
    return isinstance(operand, relax.Var) and str(operand.ty.dtype) == "float32"


def matmul(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Product with a constant matrix, or of two computed tensors of matrices."""
    data, shape, given = call.args[0], shape_of(call), shape_of(call.args[0])
    if not _is_real(data) or shape is None or given is None or len(given) < 2:
        return None
    weights = rewrite.constants.of(call.args[1])
    if weights is None and _is_real(call.args[1]):
        return _batched(rewrite, data, call.args[1], shape)
    if weights is None or weights.ndim != 2 or str(weights.dtype) != "float32":
        return None
    geometry = Geometry(
        batch=1, height=math.prod(given[:-1]), width=1, channels=given[-1], outputs=weights.shape[1]
    )
    return _product(data, shape, geometry, weights.T)


def _batched(rewrite: Rewrite, left: Any, right: Any, shape: tuple[int, ...]) -> Batched | None:
    """Return the products of tensors of as many matrices; None where one is used for several, or too few."""
    given, other = shape_of(left), shape_of(right)
    if given is None or other is None or len(given) < 3 or given[:-2] != other[:-2]:
        return None
    count, threads = math.prod(given[:-2]), getattr(rewrite, "threads", 1)
    geometry = Geometry(batch=1, height=given[-2], width=1, channels=given[-1], outputs=other[-1])
    idle = 1 - count / (-(-count // threads) * threads)
    if geometry.rows < MIN_ROWS or idle > MAX_IDLE or not pays(geometry, count):
        return None
    return Batched(left, right, shape, count, geometry)


def conv2d(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Convolution of one group, with constant weights and its channels last."""
    data, shape, given, attrs = call.args[0], shape_of(call), shape_of(call.args[0]), call.attrs
    if not _is_real(data) or shape is None or given is None or int(attrs.groups) != 1:
        return None
    layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout) or "NHWC"
    weights = rewrite.constants.of(call.args[1])
    if layouts != ("NHWC", "HWIO", "NHWC") or weights is None or str(weights.dtype) != "float32":
        return None
    batch, height, width, channels = given
    geometry = Geometry(
        batch=batch,
        height=height,
        width=width,
        channels=channels,
        outputs=weights.shape[3],
        kernel=(weights.shape[0], weights.shape[1]),
        stride=tuple(map(int, attrs.strides)),  # type: ignore[arg-type]
        padding=tuple(map(int, attrs.padding)),  # type: ignore[arg-type]
        dilation=tuple(map(int, attrs.dilation)),  # type: ignore[arg-type]
    )
    if (geometry.out_height, geometry.out_width) != shape[1:3]:
        return None
    return _product(data, shape, geometry, weights.transpose(3, 0, 1, 2).reshape(weights.shape[3], -1))


def _product(data: Any, shape: tuple[int, ...], geometry: Geometry, weights: NDArray[np.float32]) -> Any:
    if not pays(geometry):
        return None
    return Product(data, shape, geometry, weights, np.zeros(geometry.outputs))


def _follows(rewrite: Rewrite, operand: Any, shape: Any) -> Product | None:
    """Return the product that an operand is, if nothing else reads it."""
    fact = rewrite.facts.get(operand) if isinstance(operand, relax.Var) else None
    if not isinstance(fact, Product) or rewrite.uses.get(operand) != 1 or fact.shape != shape:
        return None
    return fact


def add(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Sum: of a product and its bias, or of a product and a residual."""
    shape = shape_of(call)
    operands = list(call.args)
    for operand, other in zip(operands, reversed(operands)):
        fact = _follows(rewrite, operand, shape)
        if shape is None or fact is None or fact.residual is not None:
            continue
        bias = columns_of(rewrite, other, shape, len(shape) - 1)
        if bias is not None and fact.low is None and fact.high is None:
            return replaced(fact, bias=fact.bias + bias)
        if _is_real(other) and shape_of(other) == shape:
            return replaced(fact, residual=other)
    return None


def bounded(rewrite: Rewrite, variable: Any, call: Any) -> Any:
    """Bounds of a product, or of its sum with a residual."""
    fact, limits = _follows(rewrite, call.args[0], shape_of(call)), limits_of(rewrite, call)
    if fact is None or limits is None:
        return None
    if fact.residual is None:
        low, high = narrowed((fact.low, fact.high), limits)
        return replaced(fact, low=low, high=high)
    low, high = narrowed((fact.last_low, fact.last_high), limits)
    return replaced(fact, last_low=low, last_high=high)


HANDLERS: Mapping[str, Handler] = {
    "relax.matmul": matmul,
    "relax.nn.conv2d": conv2d,
    "relax.add": add,
    "relax.clip": bounded,
    "relax.maximum": bounded,
    "relax.minimum": bounded,
    "relax.nn.relu": bounded,
    "relax.nn.relu6": bounded,
}
