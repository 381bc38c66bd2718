"""Attentions in a Relax function, as PyTorch's and ONNX's exporters write them.

    softmax(q k^T * scale [+ masks]) v

PyTorch scales both operands before their product, and gives zeros to a row whose scores are all infinite.
What lies between two operators may be a cast, a reshape or a transpose: none of them is computed. Kernels
differ in what they can read, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wmsched.relax.attention.kernel import View
from wmsched.relax.attention.masks import MASKED, Mask
from wmsched.relax.attention.views import CAST, FLOATS, Bindings, Seen, keeps_elements, scaled, seen, written
from wmsched.relax.int8.constants import operator
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["EMPTY", "NAN", "Found", "attention_of"]

MATMUL, SOFTMAX, WHERE, ADD = "relax.matmul", "relax.nn.softmax", "relax.where", "relax.add"
#: Which rows of the result are zero: those of NaN, or those whose scores are all minus infinity.
NAN, EMPTY = "nan", "empty"
#: From a row's condition back to its scores: whether all of them are minus infinity.
SAFE = (("logical_not",), ("not_equal", "astype"), ("max",), ("astype",), ("logical_not",), ("equal",))
COMPARED = {"relax.not_equal": 0.0, "relax.equal": -math.inf}
MAX_MASKS = 4


@dataclass(frozen=True, kw_only=True)
class Found:
    """An attention of a function.

    Parameters
    ----------
    softmax, last : Var
        Its softmax, and what a kernel writes.
    inside : frozenset of Var
        What is no longer computed for itself.
    batch, heads, rows, keys, width, outputs : int
        Queries are [batch, heads, rows, width], keys [batch, heads, keys, width], values
        [batch, heads, keys, outputs].
    q, k, v : Seen
    out : View
    masks : tuple of Mask
    scale : float
        Of the products of queries and keys.
    zero : str
        Which rows of the result are zero: none (""), `NAN` or `EMPTY`.
    """

    softmax: Any
    last: Any
    inside: frozenset[Any]
    batch: int
    heads: int
    rows: int
    keys: int
    width: int
    outputs: int
    q: Seen
    k: Seen
    v: Seen
    out: View
    masks: tuple[Mask, ...]
    scale: float
    zero: str

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Tensors that q, k and v lie in, and the masks or their conditions."""
        return (self.q.base, self.k.base, self.v.base, *(mask.expression for mask in self.masks))

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """Shape of the scores in four axes."""
        return self.batch, self.heads, self.rows, self.keys


@dataclass
class _Scores:
    """What the scores are made of, read from the softmax back to the product."""

    product: Any
    inside: set[Any]
    scale: float = 1.0
    masks: list[Mask] = field(default_factory=list)


def attention_of(
    given: Bindings,
    variable: Any,
    is_readable: Callable[[str, Seen], bool],
    is_writable: Callable[[View], bool],
) -> Found | None:
    """Return the attention whose second product a variable is; None of any other.

    Parameters
    ----------
    is_readable : callable (name, Seen) -> bool
        Whether a kernel can read "q", "k" or "v" as part of another tensor. Of several it reads the one that
        is nearest to where it was computed.
    is_writable : callable (View) -> bool
        Whether it can write the result as part of another.
    """
    product = given.values[variable]
    if operator(product) != MATMUL:
        return None
    inside: set[Any] = set()
    softmax, zero = _shares(given, product.args[0], inside)
    shape = shape_of(given.values.get(softmax))
    if shape is None or len(shape) < 2:
        return None
    scores = _scores(given, given.values[softmax].args[0])
    if scores is None:
        return None
    inside |= scores.inside
    if not all(reader in inside | {variable} for one in inside for reader in given.readers.get(one, ())):
        return None
    batch, heads = (shape[0], shape[1]) if len(shape) == 4 else (1, math.prod(shape[:-2]))
    read: dict[str, Seen] = {}
    for name, operand in zip("qkv", (*scores.product.args, product.args[1]), strict=True):
        size = shape_of(operand)
        if size is None or len(size) < 2 or math.prod(size[:-2]) != batch * heads:
            return None  # one side has fewer heads
        options = list(seen(given, operand, (batch, heads, *size[-2:]), transposed=name == "k"))
        best = next((one for one in reversed(options) if is_readable(name, one)), None)
        if best is None:
            return None
        read[name] = best
    width, outputs = ((shape_of(one) or ())[-1] for one in (scores.product.args[0], product.args[1]))
    end = written(given, variable, (batch, heads, shape[-2], outputs), is_writable)
    if end is None or read["v"].factor != 1.0:
        return None
    left, last, out = end
    found = Found(
        softmax=softmax, last=last, inside=frozenset(inside | left),
        batch=batch, heads=heads, rows=shape[-2], keys=shape[-1], width=width, outputs=outputs,
        **read, out=out, masks=tuple(scores.masks),
        scale=scores.scale * read["q"].factor * read["k"].factor, zero=zero,
    )  # fmt: skip
    return None if found.inside.intersection(found.arguments) else found


def _through(given: Bindings, expression: Any, inside: set[Any]) -> Any:
    """Return what an expression is but for casts and reshapes, and note what lies between."""
    while True:
        variable, call = given.root(expression), given.value(expression)
        if operator(call) == CAST:
            if not all(str(one.ty.dtype) in FLOATS for one in (call, call.args[0])):
                return variable
        elif not keeps_elements(call) or (shape_of(call.args[0]) or ())[-2:] != (shape_of(call) or ())[-2:]:
            return variable
        inside.add(variable)
        expression = call.args[0]


def _shares(given: Bindings, expression: Any, inside: set[Any]) -> tuple[Any, str]:
    """Return the softmax that an expression is, and which of its rows are zeros; None if it is no softmax."""
    variable, zero = _through(given, expression, inside), ""
    call = given.value(variable)
    if operator(call) == WHERE:
        inside.add(variable)
        condition, zeros, shares = call.args
        variable = _through(given, shares, inside)
        call = given.value(variable)
        zero = _guard(given, condition, variable, inside)
        if not zero or not _is_zero(given, zeros, inside):
            return None, ""
    axes = len(shape_of(call) or ())
    if operator(call) != SOFTMAX or int(call.attrs.axis) not in (-1, axes - 1):
        return None, ""
    inside.add(variable)
    return variable, zero


def _guard(given: Bindings, condition: Any, softmax: Any, inside: set[Any]) -> str:
    """Return of which rows of a softmax a condition is true; "" of others."""
    call = given.value(condition)
    if operator(call) == "relax.isnan":
        inside.add(given.root(condition))
        return NAN if _through(given, call.args[0], inside).same_as(softmax) else ""
    expression = condition
    for names in SAFE:
        variable, call = given.root(expression), given.value(expression)
        name = operator(call)
        if name.removeprefix("relax.") not in names:
            return ""
        if name in COMPARED and given.number(call.args[1]) != COMPARED[name]:
            return ""
        axes = len(shape_of(call.args[0]) or ())
        if name == "relax.max" and [int(axis) % axes for axis in call.attrs.axis or ()] != [axes - 1]:
            return ""
        inside.add(variable)
        expression = call.args[0]
    scores, call = _through(given, expression, inside), given.value(softmax)
    if operator(call) != SOFTMAX or not scores.same_as(_through(given, call.args[0], set())):
        return ""
    return EMPTY


def _is_zero(given: Bindings, expression: Any, inside: set[Any]) -> bool:
    call = given.value(expression)
    if operator(call) in ("relax.full_like", "relax.full", "relax.zeros_like"):
        inside.add(given.root(expression))
        return operator(call) == "relax.zeros_like" or given.number(call.args[1]) == 0.0
    found = given.array(expression)
    return found is not None and not found.any()


def _scores(given: Bindings, expression: Any, masks: int = MAX_MASKS) -> _Scores | None:
    """Return what scores are made of; None if a product is not among it, or in another order."""
    inside: set[Any] = set()
    expression = _through(given, expression, inside)
    call = given.value(expression)
    product, found = scaled(given, call), None
    if operator(call) == MATMUL:
        found = _Scores(call, set())
    elif product is not None:
        found = _scores(given, product[0], 0)
        if found is not None:
            found.scale *= product[1]
    elif masks:
        for scores, mask in _masked(given, call):
            found = _scores(given, scores, masks - 1)
            if found is not None:
                found.masks += [mask] if mask is not None else []
                break
    if found is not None:
        found.inside |= {*inside, expression}
    return found


def _masked(given: Bindings, call: Any) -> list[tuple[Any, Mask | None]]:
    """Return which operands of a sum or a choice may be scores, and the mask of each; None: of zeros."""
    shape, found = shape_of(call), list[tuple[Any, Mask | None]]()
    if shape is None:
        return found
    if operator(call) == ADD:
        left, right = call.args
        for scores, other in ((left, right), (right, left)):
            numbers = given.array(other)
            zeros = numbers is not None and not numbers.any()
            found.append((scores, None if zeros else Mask(other, shape)))
    elif operator(call) == WHERE:
        for place in (1, 2):
            number = given.number(call.args[3 - place])
            if number is not None and number <= MASKED:
                mask = Mask(call.args[0], shape, number, kept=place == 1)
                found.append((call.args[place], mask))
    return [(scores, mask) for scores, mask in found if shape_of(scores) == shape]
