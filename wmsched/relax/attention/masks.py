"""Masks of an attention's scores: a tensor that is added, or a decoder's order of rows and keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from wmsched.relax.attention.kernel import Shape, View
from wmsched.relax.attention.views import HALF, Bindings, Seen, in_four
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["MASKED", "Mask", "placed"]

MASKED = -1e9  # a number so low that a key with it has no share beside one without


@dataclass(frozen=True)
class Mask:
    """What is added to the scores: a tensor; or `value` where a condition is not `kept`, which is a truth."""

    expression: Any
    value: float | None = None
    kept: bool = True


def placed(
    given: Bindings, mask: Mask | None, shape: tuple[int, int, int, int], axes: int
) -> tuple[int | None, View | None]:
    """Return how far a mask lets a row see, or else the view of its tensor; neither if it has no place."""
    if mask is None:
        return None, None
    own = shape_of(mask.expression)
    if own is None:
        return None, None
    causal = _causal(given, mask, shape)
    if causal is not None:
        return causal, None
    whole = np.empty(own, np.uint8)
    scores: Shape = shape if axes == 4 else (shape[0] * shape[1], *shape[2:])[-axes:]
    lies = in_four(np.broadcast_to(whole, scores), shape[0], shape[1])
    dtype = "float32" if mask.value is not None else str(mask.expression.ty.dtype)
    if lies is None or dtype not in ("float32", *HALF):
        return None, None
    return None, Seen(mask.expression, whole, lies, dtype).view


def _causal(given: Bindings, mask: Mask, shape: tuple[int, int, int, int]) -> int | None:
    """Return how many keys after its own row a row sees, by a constant mask; None of other masks."""
    numbers = given.array(mask.expression)
    if numbers is None or numbers.ndim < 2 or math.prod(numbers.shape[:-2]) != 1:
        return None
    numbers = numbers.reshape(numbers.shape[-2:])
    if numbers.shape != shape[2:]:
        return None
    kept = numbers.astype(bool) == mask.kept if mask.value is not None else numbers == 0
    if mask.value is None and not (kept | (numbers <= MASKED)).all():
        return None
    offset = int(kept[0].sum()) - 1
    rows, keys = np.arange(shape[2])[:, None], np.arange(shape[3])[None]
    return offset if offset >= 0 and (kept == (keys <= rows + offset)).all() else None
