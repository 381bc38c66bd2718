"""Views: where the elements of a chain of reshapes, transposes and slices lie, by numpy's strides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from wmsched.relax.attention.kernel import Shape, View
from wmsched.relax.int8.constants import operator
from wmsched.relax.passes.fold_constants import PERMUTE, RESHAPES, SLICE, array_of
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["Bindings", "Seen", "keeps_elements", "places", "scaled", "seen", "stretched", "written"]

BROADCAST, SPLIT, CAST = "relax.broadcast_to", "relax.split", "relax.astype"
MULTIPLY, DIVIDE = "relax.multiply", "relax.divide"
HALF = ("float16", "bfloat16")
FLOATS = ("float32", *HALF)

Lies = NDArray[np.uint8]  # one byte for an element: its strides are in elements; nothing is written into it


@dataclass(frozen=True)
class Move:
    """What an operator does that only moves elements."""

    of: Callable[[Lies], Lies]
    is_reshape: bool = False


@dataclass(frozen=True)
class Seen:
    """A tensor as part of another.

    Parameters
    ----------
    base : Var or Constant
    view : View
        Where it lies in the base, whose numbers are rounded to the view's type.
    factor : float
        By which the base's numbers are multiplied.
    """

    base: Any
    view: View
    factor: float = 1.0


class Bindings:
    """What a function's variables are bound to, and who reads them.

    Parameters
    ----------
    bindings : iterable of (Var, expression)
    result : expression
    """

    def __init__(self, bindings: Iterable[tuple[Any, Any]], result: Any) -> None:
        self.values = dict(bindings)
        #: The variables whose expressions read a variable, each as often as it does; None: the result.
        self.readers: dict[Any, list[Any]] = {}
        for reader, value in (*self.values.items(), (None, result)):
            relax.analysis.post_order_visit(value, lambda node, reader=reader: self.read(node, reader))

    def read(self, node: Any, reader: Any) -> None:
        """Note who reads a node, if it is a variable."""
        if isinstance(node, relax.Var):
            self.readers.setdefault(node, []).append(reader)

    def root(self, expression: Any) -> Any:
        """Return the variable or constant that an expression is another name of."""
        while isinstance(expression, relax.Var) and isinstance(self.values.get(expression), relax.Var):
            expression = self.values[expression]
        return expression

    def value(self, expression: Any) -> Any:
        """Return what computes an expression; itself where nothing does."""
        found = self.root(expression)
        return self.values.get(found, found) if isinstance(found, relax.Var) else found

    def number(self, expression: Any) -> float | None:
        """Return the number of a constant of one element, rounded or not; None for anything else."""
        found = self.array(expression)
        return float(found.reshape(-1)[0]) if found is not None and found.size == 1 else None

    def array(self, expression: Any) -> Any:
        """Return a constant's numbers; None for anything else."""
        found = self.value(expression)
        if operator(found) in (CAST, *RESHAPES):
            shape = shape_of(found)
            inner = self.array(found.args[0])
            return None if inner is None or shape is None else inner.reshape(shape)
        if isinstance(found, (tvm.tirx.FloatImm, tvm.tirx.IntImm)):
            return np.asarray(found.value)
        is_tensor = isinstance(found, tvm.ir.Constant) and isinstance(found.value, tvm.runtime.Tensor)
        return array_of(found) if is_tensor else None


def scaled(given: Bindings, call: Any) -> tuple[Any, float] | None:
    """Return the tensor that a call multiplies by a number, and the number; None of any other."""
    if operator(call) not in (MULTIPLY, DIVIDE):
        return None
    (left, right), shape = call.args, shape_of(call)
    for tensor, other in ((left, right), (right, left)):
        number = given.number(other)
        if number and shape_of(tensor) == shape is not None:
            return tensor, number if operator(call) == MULTIPLY else 1 / number
        if operator(call) == DIVIDE:
            break  # a number over a tensor is no multiple of it
    return None


def keeps_elements(call: Any) -> bool:
    """Whether a call gives its tensor's elements, in their order, another shape."""
    if operator(call) not in (*RESHAPES, BROADCAST):
        return False
    given, shape = shape_of(call.args[0]), shape_of(call)
    return given is not None and shape is not None and math.prod(given) == math.prod(shape)


def places(shape: Shape | None, dtype: str, moves: Sequence[Move]) -> View | None:
    """Return where moves to four axes leave the elements of a tensor; None if they have to be copied."""
    if shape is None or 0 in shape:
        return None
    whole: Lies = np.empty(shape, np.uint8)
    lies = whole
    for move, after in itertools.zip_longest(moves, moves[1:]):
        if move.is_reshape and after is not None and after.is_reshape:
            continue  # the next one alone tells the shape
        lies = move.of(lies)
        if not np.may_share_memory(lies, whole):
            return None
    start = lies.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    batch, head, row, column = (
        int(extent == 1 and axis == 3) if extent == 1 else stride
        for axis, (extent, stride) in enumerate(zip(lies.shape, lies.strides, strict=True))
    )
    return View(shape, dtype, (batch, head, row, column), start)


def reshaped(shape: Shape) -> Move:
    """Return the move to a shape of as many elements."""
    return Move(lambda lies: lies.reshape(shape), is_reshape=True)


def stretched(shape: Shape) -> Move:
    """Return the move to a shape to which operators broadcast a tensor."""
    return Move(lambda lies: np.broadcast_to(lies, shape))


def _move(given: Bindings, call: Any) -> tuple[Any, Move] | None:
    """Return of what tensor a value has elements, and how they are moved; None of any other value."""
    if isinstance(call, relax.TupleGetItem):
        return _part_of_split(given, call)
    name, shape = operator(call), shape_of(call)
    if shape is None:
        return None
    if keeps_elements(call):
        return call.args[0], reshaped(shape)
    if name == BROADCAST:
        return call.args[0], stretched(shape)
    if name == PERMUTE:
        axes = _axes(call, len(shape))
        return call.args[0], Move(lambda lies: lies.transpose(axes))
    return _slice(call) if name == SLICE else None


def _axes(call: Any, rank: int) -> list[int]:
    axes = call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def _unpermuted(call: Any) -> Move:
    """Return the move from a permutation's result to its tensor."""
    order = np.argsort(_axes(call, len(shape_of(call) or ()))).tolist()
    return Move(lambda lies: lies.transpose(order))


def _slice(call: Any) -> tuple[Any, Move] | None:
    """Return what a slice takes, if its bounds are numbers."""
    given = []
    for operand in call.args[1:]:
        fields: list[Any] = list(operand.fields) if isinstance(operand, relax.Tuple) else [operand]
        numbers = [getattr(one, "value", None) for one in fields]
        if not all(isinstance(number, int) for number in numbers):
            return None
        given.append([int(number) for number in numbers if number is not None])
    axes, begins, ends, *more = given
    steps = more[0] if more else [1] * len(axes)
    rank, shape = len(shape_of(call) or ()), shape_of(call)
    cuts = {axis % rank: slice(*cut) for axis, *cut in zip(axes, begins, ends, steps, strict=True)}
    taken = tuple(cuts.get(k, slice(None)) for k in range(rank))
    before = shape_of(call.args[0])
    if before is None or min(steps, default=1) < 1:
        return None
    lengths = tuple(len(range(*cut.indices(extent))) for cut, extent in zip(taken, before, strict=True))
    return (call.args[0], Move(lambda lies: lies[taken])) if lengths == shape else None


def _part_of_split(given: Bindings, item: Any) -> tuple[Any, Move] | None:
    call = given.value(item.tuple_value)
    if operator(call) != SPLIT:
        return None
    axis, ends, whole = int(call.attrs.axis), call.attrs.indices_or_sections, shape_of(call.args[0])
    if whole is None:
        return None
    if hasattr(ends, "value"):
        each = whole[axis] // int(ends.value)
        bounds = [*range(0, whole[axis], each), whole[axis]]
    else:
        bounds = [0, *(int(one) for one in ends), whole[axis]]
    cut = slice(bounds[item.index], bounds[item.index + 1])
    taken = tuple(cut if k == axis % len(whole) else slice(None) for k in range(len(whole)))
    return call.args[0], Move(lambda lies: lies[taken])


def seen(given: Bindings, expression: Any, shape: Shape, *, transposed: bool = False) -> Iterator[Seen]:
    """Yield a tensor in a shape of as many elements, as part of itself, of what it is moved from, and so on.

    Parameters
    ----------
    transposed : bool
        Whether the last two of the shape's axes are exchanged then.
    """
    moves = [reshaped(shape), *([Move(lambda lies: lies.swapaxes(2, 3))] if transposed else [])]
    factor, dtype = 1.0, str(expression.ty.dtype)
    while True:
        view = places(shape_of(expression), dtype, moves)
        if view is not None:
            yield Seen(given.root(expression), view, factor)
        call = given.value(expression)
        product, moved = scaled(given, call), _move(given, call)
        if product is not None:
            expression, number = product
            factor *= number
        elif moved is not None:
            expression, move = moved
            moves.insert(0, move)
        elif operator(call) == CAST:
            source, own = (str(one.ty.dtype) for one in (call.args[0], call))
            if not {source, own} <= set(FLOATS) or "float32" not in (source, own):
                return
            if dtype == "float32":  # products of half floats are exact in float32
                dtype = source
            expression = call.args[0]
        else:
            return


def written(
    given: Bindings, variable: Any, shape: Shape, is_writable: Callable[[View], bool]
) -> tuple[set[Any], Any, View] | None:
    """Return the last variable that a kernel can write in place of one, after what moves it, and its view.

    The first of the three is what it then leaves out. None where it can write not even the variable itself.

    Parameters
    ----------
    shape : tuple of int
        Of the variable's elements, in four axes.
    """
    back, left = [reshaped(shape)], set[Any]()
    best, casts = None, 0
    while True:
        view = places(shape_of(variable), str(variable.ty.dtype), back)
        if view is not None and is_writable(view):
            best = (set(left), variable, view)
        readers = given.readers.get(variable, [])
        if len(readers) != 1 or readers[0] is None:
            return best
        left.add(variable)
        (variable,) = readers
        call = given.values[variable]
        if operator(call) == CAST and not casts:
            casts += 1
        elif keeps_elements(call):
            back.insert(0, reshaped(shape_of(call.args[0]) or ()))
        elif operator(call) == PERMUTE:
            back.insert(0, _unpermuted(call))
        elif not isinstance(call, relax.Var):  # else another name
            return best
