"""Lossless packing of configurations (section 2.2.3): six values of -1..5 are one number in base 7.

    code = sum_k (value_k + 1) * 7^k        k = 0..5, 0 <= code < 7^6 = 117649

A row of 18 columns becomes three int32 numbers, a sixth of its size in float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

GROUP = 6  # columns in a number
BASE = 7
LEAST, MOST = -1, 5  # values of a column: -1 is padding
CODES = BASE**GROUP
_POWERS = BASE ** np.arange(GROUP, dtype=np.int32)
_CHUNK = 1 << 20  # groups converted at a time, which bounds the memory of the intermediate int32 array


def pack_configs(values: ArrayLike) -> NDArray[np.int32]:
    """Pack the last axis.

    Parameters
    ----------
    values : [..., 6 g] of any numeric type, whole numbers of -1..5

    Returns
    -------
    int32 [..., g]

    Raises
    ------
    ValueError
        The last axis is no multiple of six, or a value is no whole number of -1..5.
    """
    array = np.asarray(values)
    if array.ndim < 1 or array.shape[-1] % GROUP:
        raise ValueError(
            f"configurations of shape {array.shape}: the last axis must be a multiple of {GROUP}"
        )
    groups = array.reshape(-1, GROUP)
    packed = np.empty(len(groups), np.int32)
    for start in range(0, len(groups), _CHUNK):
        part = groups[start : start + _CHUNK]
        inside = (part >= LEAST) & (part <= MOST) & (part == np.floor(part))  # False for NaN
        if not inside.all():
            raise ValueError(f"configuration value {part[~inside][0]} is no whole number of {LEAST}..{MOST}")
        packed[start : start + _CHUNK] = (part.astype(np.int32) - LEAST) @ _POWERS
    return packed.reshape(*array.shape[:-1], array.shape[-1] // GROUP)


def unpack_configs(codes: ArrayLike) -> NDArray[np.int8]:
    """Return what `pack_configs` packed: int8 [..., 6 g] of codes [..., g].

    Raises
    ------
    ValueError
        A code is outside [0, 7^6).
    """
    array = np.asarray(codes)
    if array.ndim < 1:
        raise ValueError(f"codes of shape {array.shape}: one axis at least")
    if array.size and (array.min() < 0 or array.max() >= CODES):
        raise ValueError(f"codes {array.min()}..{array.max()} outside 0..{CODES - 1}")
    values = array[..., None] // _POWERS % BASE + LEAST
    return values.astype(np.int8).reshape(*array.shape[:-1], array.shape[-1] * GROUP)
