"""Masks of an attention's scores: a tensor that is added, or a decoder's order of rows and keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from wmsched.relax.attention.kernel import Shape, View
from wmsched.relax.attention.views import Bindings, places, reshaped, stretched
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["MASKED", "Mask", "causal_of"]

MASKED = -1e9  # a number so low that a key with it has no share beside one without


@dataclass(frozen=True)
class Mask:
    """What is added to the scores: a tensor; or `value` where a condition is not `kept`, which is a truth.

    Parameters
    ----------
    scores : tuple of int
        Shape to which it is broadcast.
    """

    expression: Any
    scores: Shape
    value: float | None = None
    kept: bool = True

    def view(self, shape: Shape) -> View | None:
        """Return where its numbers for scores of four axes lie; None if they have no place."""
        dtype = "float32" if self.value is not None else str(self.expression.ty.dtype)
        return places(shape_of(self.expression), dtype, [stretched(self.scores), reshaped(shape)])

    def added(self, builder: Any, expression: Any) -> Any:
        """Emit what is added, of the tensor or the condition in the function that is built."""
        if self.value is None:
            return expression
        numbers = [relax.const(np.asarray(one, np.float32)) for one in (0.0, self.value)]
        return builder.emit(relax.op.where(expression, *(numbers if self.kept else numbers[::-1])))


def causal_of(given: Bindings, mask: Mask, rows: int, keys: int) -> int | None:
    """Return how many keys after its own row a row sees, by a constant mask; None of other masks."""
    numbers = given.array(mask.expression)
    if numbers is None or numbers.ndim < 2 or math.prod(numbers.shape[:-2]) != 1:
        return None
    numbers = numbers.reshape(numbers.shape[-2:])
    if numbers.shape != (rows, keys):
        return None
    kept = numbers.astype(bool) == mask.kept if mask.value is not None else numbers == 0
    if mask.value is None and not (kept | (numbers <= MASKED)).all():
        return None
    offset = int(kept[0].sum()) - 1
    order = np.arange(keys)[None] <= np.arange(rows)[:, None] + offset
    return offset if offset >= 0 and (kept == order).all() else None
