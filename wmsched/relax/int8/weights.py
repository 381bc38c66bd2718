"""Weights of kernels as numpy arrays: packed once, with the data's zero point in their bias."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.relax.int8.dots import TILE, Dot


def packed(weights: NDArray[Any], dot: Dot, depth: int) -> NDArray[Any]:
    """Return weights as a kernel reads them: [columns / 16][depth / unit][16][unit], flat.

    Parameters
    ----------
    weights : int8, or uint16 for the bits of bfloat16 [outputs, depth of the product]
    depth : int
        With padding, as of `Blocking`.
    """
    outputs, given = weights.shape
    columns = -(-outputs // TILE) * TILE
    padded = np.zeros((columns, depth), dot.weight)
    padded[:outputs, :given] = weights
    parts = padded.reshape(columns // TILE, TILE, depth // dot.unit, dot.unit)
    return np.ascontiguousarray(parts.transpose(0, 2, 1, 3)).reshape(-1)


def packed_depthwise(
    weights: NDArray[np.int8], kernel: tuple[int, int], dot: Dot
) -> NDArray[np.int8] | NDArray[np.int16]:
    """Return weights [channels, taps] as [rows of taps / unit][columns of taps][channels][unit], flat."""
    high, wide = kernel
    channels, groups = weights.shape[0], -(-high // dot.unit)
    columns = -(-channels // TILE) * TILE
    padded = np.zeros((columns, groups * dot.unit, wide), np.int16 if dot.widened else np.int8)
    padded[:channels, :high] = weights.reshape(channels, high, wide)
    parts = padded.reshape(columns, groups, dot.unit, wide)
    return np.ascontiguousarray(parts.transpose(1, 3, 0, 2)).reshape(-1)


def padded_columns(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an array whose last axis is padded with zeros to whole tiles."""
    missing = -values.shape[-1] % TILE
    return np.ascontiguousarray(np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)]))


def offsets(weights: NDArray[np.int8], zero: int) -> NDArray[np.int32]:
    """Return what the data's zero point adds to each sum, negative: to add to the sums of raw numbers."""
    flat = weights.reshape(weights.shape[0], -1).astype(np.int64)
    return (-zero * flat.sum(axis=1)).astype(np.int32)
