"""Attentions in a Relax function, as PyTorch's and ONNX's exporters write them.

    softmax(q k^T * scale [+ mask]) v

PyTorch scales both operands before their product, and gives zeros to a row whose scores are all infinite.
What lies between two operators may be a cast, a reshape or a transpose: none of them is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from wmsched.relax.attention.kernel import KINDS, Attention, View
from wmsched.relax.attention.masks import MASKED, Mask, placed
from wmsched.relax.attention.views import (
    BROADCAST,
    CAST,
    HALF,
    MULTIPLY,
    PERMUTE,
    RESHAPES,
    Bindings,
    Seen,
    in_four,
    seen,
    undone,
)
from wmsched.relax.int8.constants import operator
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["Found", "attention_of"]

MATMUL, SOFTMAX, WHERE = "relax.matmul", "relax.nn.softmax", "relax.where"
ADD, DIVIDE = "relax.add", "relax.divide"
#: From a row's condition back to its scores: whether all of them are minus infinity.
SAFE = (("logical_not",), ("not_equal", "astype"), ("max",), ("astype",), ("logical_not",), ("equal",))
MIN_ROWS, MIN_WIDTH, MAX_WIDTH = 16, 16, 128
ALIGNED_BYTES = 16  # that a copy moves at once
MAX_ELEMENTS = 1 << 31  # that a place in a tensor is an int of


@dataclass(frozen=True)
class Found:
    """An attention of a function.

    Parameters
    ----------
    last : Var
        What the kernel writes.
    attention : Attention
        Its mask's view is of `mask` as the model has it.
    operands : tuple of expression
        The tensors that q, k and v lie in, once they are rounded to the views' type.
    mask : Mask, optional
    """

    last: Any
    attention: Attention
    operands: tuple[Any, Any, Any]
    mask: Mask | None


@dataclass
class _Scores:
    """What the scores are made of, read from the softmax back to the product."""

    product: Any = None
    scale: float = 1.0
    mask: Mask | None = None


def attention_of(given: Bindings, variable: Any, *, tf32: bool, capability: float) -> Found | None:
    """Return the attention whose second product a variable is; None of any other.

    Parameters
    ----------
    tf32 : bool
        Whether products of float32 may be computed so.
    capability : float
        The GPU's compute capability.
    """
    product = given.values[variable]
    if operator(product) != MATMUL or shape_of(product) is None:
        return None
    within: set[Any] = set()
    softmax, is_safe = _shares(given, product.args[0], within)
    if softmax is None:
        return None
    scores = _scores(given, softmax.args[0], within)
    shape = shape_of(softmax)
    if scores is None or shape is None or not _is_closed(given, within, variable):
        return None
    batch, heads = (shape[0], shape[1]) if len(shape) == 4 else (1, math.prod(shape[:-2]))
    rows, keys = shape[-2:]
    options = [
        _operand(given, expression, batch, heads, transposed=transposed)
        for expression, transposed in (
            (scores.product.args[0], False),
            (scores.product.args[1], True),
            (product.args[1], False),
        )
    ]
    q, k, v = (_best(each) for each in options)
    if q is None or k is None or v is None or v.factor != 1.0:
        return None
    dtypes = {one.dtype for one in (q, k, v)}
    width = q.lies.shape[3]
    fits = (
        q.lies.shape == (batch, heads, rows, width)
        and k.lies.shape == (batch, heads, keys, width) == v.lies.shape
        and rows >= MIN_ROWS
        and MIN_WIDTH <= width <= MAX_WIDTH
        and len(dtypes) == 1
        and max(one.whole.size for one in (q, k, v)) < MAX_ELEMENTS
    )
    if not fits:
        return None
    (dtype,) = dtypes
    kind = "tf32" if dtype == "float32" and tf32 else dtype
    needed = {"float32": 0.0, "float16": 7.5}.get(kind, 8.0)
    out = _written(given, variable, batch, heads)
    if kind not in KINDS or capability < needed or out is None:
        return None
    last, place = out
    causal, mask = placed(given, scores.mask, (batch, heads, rows, keys), len(shape))
    if scores.mask is not None and mask is None and causal is None:
        return None
    attention = Attention(
        batch=batch,
        heads=heads,
        rows=rows,
        keys=keys,
        width=width,
        kind=kind,
        q=q.view,
        k=k.view,
        v=v.view,
        out=place,
        mask=mask,
        scale=scores.scale * q.factor * k.factor,
        causal=causal,
        is_safe=is_safe,
    )
    return Found(last, attention, (q.base, k.base, v.base), scores.mask if mask is not None else None)


def _is_closed(given: Bindings, within: set[Any], last: Any) -> bool:
    """Whether nobody else reads what the kernel no longer writes."""
    known = within | {last}
    return all(reader in known for one in within for reader in given.readers.get(one, ()))


def _same_rows(call: Any) -> bool:
    """Whether a move keeps all elements, and rows of keys as they are."""
    before, after = shape_of(call.args[0]), shape_of(call)
    if before is None or after is None or math.prod(before) != math.prod(after):
        return False
    return before[-2:] == after[-2:]


def _through(given: Bindings, expression: Any, within: set[Any]) -> Any:
    """Return what an expression is but for casts and reshapes, and note what lies between."""
    while True:
        variable, call = given.root(expression), given.value(expression)
        name = operator(call)
        if name == CAST:
            kinds = [str(one.ty.dtype) for one in (call, call.args[0])]
            if not all(kind in ("float32", *HALF) for kind in kinds):
                return variable
        elif not (name in (*RESHAPES, BROADCAST) and _same_rows(call)):
            return variable
        within.add(variable)
        expression = call.args[0]


def _shares(given: Bindings, expression: Any, within: set[Any]) -> tuple[Any, bool]:
    """Return the softmax that an expression is, and whether it is zeros of a row without a key."""
    variable = _through(given, expression, within)
    call = given.value(variable)
    is_safe = operator(call) == WHERE
    if is_safe:
        within.add(variable)
        condition, zeros, shares = call.args
        variable = _through(given, shares, within)
        call = given.value(variable)
        scores = _unmasked(given, condition, within)
        if operator(call) != SOFTMAX or scores is None or not _is_zero(given, zeros, within):
            return None, False
        if not scores.same_as(_through(given, call.args[0], set())):
            return None, False
    axes = len(shape_of(call) or ())
    if operator(call) != SOFTMAX or int(call.attrs.axis) not in (-1, axes - 1):
        return None, False
    within.add(variable)
    return call, is_safe


def _unmasked(given: Bindings, condition: Any, within: set[Any]) -> Any:
    """Return the scores of which a condition says that a whole row is minus infinity; None of others."""
    expression, numbers = condition, {"relax.not_equal": 0.0, "relax.equal": -math.inf}
    for names in SAFE:
        variable, call = given.root(expression), given.value(expression)
        name = operator(call)
        if name.removeprefix("relax.") not in names:
            return None
        if name in numbers and given.number(call.args[1]) != numbers[name]:
            return None
        axes = len(shape_of(call.args[0]) or ())
        if name == "relax.max" and [int(axis) % axes for axis in call.attrs.axis or ()] != [axes - 1]:
            return None
        within.add(variable)
        expression = call.args[0]
    return _through(given, expression, within)


def _is_zero(given: Bindings, expression: Any, within: set[Any]) -> bool:
    call = given.value(expression)
    if operator(call) in ("relax.full_like", "relax.full"):
        within.add(given.root(expression))
        return given.number(call.args[1]) == 0.0
    if operator(call) == "relax.zeros_like":
        within.add(given.root(expression))
        return True
    found = given.array(expression)
    return found is not None and not found.any()


def _scores(given: Bindings, expression: Any, within: set[Any]) -> _Scores | None:
    """Return what scores are made of; None if a product is not among it, or in another order."""
    found = _Scores()
    while True:
        expression = _through(given, expression, within)
        call = given.value(expression)
        name = operator(call)
        if name == MATMUL:
            found.product = call
            within.add(expression)
            return found
        if name in (MULTIPLY, DIVIDE):
            place = 0 if given.number(call.args[1]) is not None else 1
            number = given.number(call.args[1 - place])
            if number is None or (name == DIVIDE and (place or not number)):
                return None
            found.scale *= 1 / number if name == DIVIDE else number
        elif name in (ADD, WHERE) and found.mask is None and found.scale == 1.0:
            masked = _masked_place(given, call)
            if masked is None:
                return None
            place = masked
            if name == ADD:
                found.mask = Mask(call.args[1 - place])
            else:
                found.mask = Mask(call.args[0], given.number(call.args[3 - place]), kept=place == 1)
        else:
            return None
        within.add(expression)
        expression = call.args[place]


def _masked_place(given: Bindings, call: Any) -> int | None:
    """Return which operand of a sum or a choice are the scores: those of the result's shape."""
    if operator(call) == ADD:
        shape = shape_of(call)
        for place in (0, 1):
            if shape_of(call.args[place]) == shape and _has_product(given, call.args[place]):
                return place
        return None
    for place in (1, 2):
        number = given.number(call.args[3 - place])
        if number is not None and number <= MASKED and shape_of(call.args[place]) == shape_of(call):
            return place
    return None


def _has_product(given: Bindings, expression: Any) -> bool:
    while True:
        expression = _through(given, expression, set())
        call = given.value(expression)
        if operator(call) not in (MULTIPLY, DIVIDE):
            return operator(call) in (MATMUL, ADD, WHERE)
        expression = call.args[0 if given.number(call.args[1]) is not None else 1]
        if given.number(expression) is not None:
            return False


def _operand(given: Bindings, expression: Any, batch: int, heads: int, *, transposed: bool) -> list[Seen]:
    """Return a product's operand as parts of other tensors, in four axes with the rows before the columns."""
    call, sources = given.value(expression), [expression]
    if operator(call) in RESHAPES:  # to one axis of batches and heads, in which it may have no strides
        shape = shape_of(call.args[0]) or ()
        if len(shape) == 4 and shape[:2] == (batch, heads) and shape[2:] == (shape_of(call) or ())[-2:]:
            sources.append(call.args[0])
    found = []
    for one in (each for source in sources for each in seen(given, source)):
        lies = in_four(one.lies, batch, heads)
        if lies is not None:
            found.append(replace(one, lies=lies.swapaxes(2, 3) if transposed else lies))
    return found


def _best(options: Sequence[Seen]) -> Seen | None:
    """Return the last of some parts that a kernel can read: the nearest to where it was computed."""
    return next((one for one in reversed(options) if _is_readable(one)), None)


def _is_readable(one: Seen) -> bool:
    if one.dtype not in ("float32", *HALF):
        return False
    view, each = one.view, ALIGNED_BYTES // (4 if one.dtype == "float32" else 2)
    aligned = (*view.strides[:3], view.offset, one.lies.shape[3])
    return view.strides[3] == 1 and not any(number % each for number in aligned)


def _written(given: Bindings, variable: Any, batch: int, heads: int) -> tuple[Any, View] | None:
    """Return the variable that a kernel writes in place of a product, after what moves it, and its view."""
    chain: list[Any] = []
    best = None
    casts = 0
    while True:
        place = _place(given, variable, chain, batch, heads)
        if place is not None:
            best = (variable, place)
        readers = given.readers.get(variable, [])
        if len(readers) != 1 or readers[0] is None:
            return best
        (following,) = readers
        call = given.values[following]
        if not isinstance(call, relax.Var):  # else another name
            name = operator(call)
            casts += name == CAST
            if name not in (*RESHAPES, PERMUTE, BROADCAST, CAST) or casts > 1:
                return best
            chain.append(call)
        variable = following


def _place(given: Bindings, last: Any, chain: Sequence[Any], batch: int, heads: int) -> View | None:
    shape, dtype = shape_of(last), str(last.ty.dtype)
    if shape is None or dtype not in ("float32", *HALF):
        return None
    whole = np.empty(shape, np.uint8)
    lies: Any = whole
    for k, call in reversed(list(enumerate(chain))):
        if k == 0 and lies.ndim == 4 and lies.shape[:2] == (batch, heads):
            break  # the product has one axis for both
        lies = undone(call, lies)
        if lies is None:
            return None
    lies = in_four(lies, batch, heads)
    if lies is None:
        return None
    view = Seen(last, whole, lies, dtype).view
    paired = view.strides[3] == 1 and not any(number % 2 for number in (*view.strides[:3], view.offset))
    return view if paired and whole.size < MAX_ELEMENTS else None
