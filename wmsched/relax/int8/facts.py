"""What the rewrite knows of a value: eight bits with channels last, or sums that wait for their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from wmsched.relax.int8.geometry import Geometry

TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
Shape = tuple[int, ...]


def last(shape: Shape) -> Shape:
    """Return a shape with the channels last; of images alone, which have four axes."""
    return tuple(shape[axis] for axis in TO_LAST) if len(shape) == 4 else shape


@dataclass(eq=False)
class Eight:
    """Quantized tensor, unsigned and with channels last. A signed one has 128 added, as its zero point has.

    Parameters
    ----------
    shape : tuple of int
        With channels first, as in the model.
    make : callable () -> Expr
        Emits what computes it; called once, when it is first needed.
    sums : Sums, optional
        The product that it is the rounded result of: it may take a residual.
    looked_up : (Eight, uint8 [256]), optional
        The tensor and the table that it is looked up in.
    """

    shape: Shape
    scale: float
    zero: int
    signed: bool
    make: Callable[[], Any]
    sums: Sums | None = None
    looked_up: tuple[Eight, NDArray[np.uint8]] | None = None
    _made: Any = None

    @property
    def var(self) -> Any:
        """The variable of the new function."""
        if self._made is None:
            self._made = self.make()
        return self._made

    @property
    def is_made(self) -> bool:
        """Whether it was needed before."""
        return self._made is not None

    def same_steps(self, scale: float, zero: int) -> bool:
        """Whether a scale and a zero point are this one's."""
        return self.scale == scale and self.zero == zero


@dataclass(eq=False)
class Real:
    """Float32 values of an `Eight`."""

    eight: Eight


@dataclass(eq=False)
class Sums:
    """Product of an `Eight` with constant weights, not yet rounded; float32 in the model.

    Parameters
    ----------
    weights : int8 [outputs, kernel height, kernel width, channels]
    scales : float64 [outputs]
        Of the weights.
    bias : float64 [outputs]
    low, high : float, optional
        Bounds of the result.
    """

    data: Eight
    shape: Shape
    geometry: Geometry
    weights: NDArray[np.int8]
    scales: NDArray[np.float64]
    bias: NDArray[np.float64] | None = None
    low: float | None = None
    high: float | None = None
    depthwise: bool = False


@dataclass(eq=False)
class Joined:
    """Sum of two `Eight`."""

    left: Eight
    right: Eight
    shape: Shape
    low: float | None = None
    high: float | None = None


@dataclass(eq=False)
class Means:
    """Mean of each channel of an `Eight`."""

    data: Eight
    shape: Shape


@dataclass(eq=False)
class Parts:
    """Concatenation of channels of `Eight`."""

    parts: list[Eight]
    shape: Shape


@dataclass(eq=False)
class Chain:
    """Float32 function of one `Eight`, number by number.

    Parameters
    ----------
    root : Eight
    values : float32 [256]
        For each of its numbers.
    make : callable () -> Expr
        Emits it with its operators, for a reader that takes float32.
    """

    root: Eight
    values: NDArray[np.float32]
    shape: Shape
    make: Callable[[], Any]


@dataclass(eq=False)
class Gated:
    """Images of an `Eight` times a number for each channel."""

    data: Eight
    gate: Chain
    shape: Shape


@dataclass(eq=False)
class Twin:
    """Float32 or other tensor that was computed with its channels last."""

    var: Any
    shape: Shape


def permuted(builder: Any, expression: Any, order: list[int]) -> Any:
    """Emit a permutation of an image's axes; return the expression itself for another rank."""
    if len(expression.ty.shape) != 4:
        return expression
    return builder.emit(relax.op.permute_dims(expression, order))
