"""Tensors of a graph as views of others: the reshapes, permutations and slices between are no copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["Strided", "View", "broadcast", "is_reshape", "result_view", "scaled_by", "view_of"]

RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.broadcast_to")
PERMUTATION, SLICE = "relax.permute_dims", "relax.strided_slice"


@dataclass(frozen=True)
class Strided:
    """Where the elements of a tensor lie in another one, which is flat.

    Parameters
    ----------
    offset : int
        Of the first element.
    strides : tuple of int
        From an element to the next, by axis; 0 along an axis of one element.
    """

    offset: int
    strides: tuple[int, ...]

    def at(self, *index: Any) -> Any:
        """Return the place of an element."""
        place: Any = self.offset
        for each, stride in zip(index, self.strides, strict=True):
            if stride:
                place = place + each * stride
        return place


@dataclass(frozen=True)
class View:
    """A tensor that is a view of `source`, times `factor`."""

    source: Any
    places: Strided
    factor: float = 1.0


@dataclass(frozen=True)
class _Move:
    """One operator that only moves elements: a shape, an order of axes, or begins and ends by axis."""

    operator: str
    numbers: tuple[Any, ...]

    def of(self, array: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return an array moved so."""
        if self.operator == PERMUTATION:
            return array.transpose(self.numbers)
        if self.operator == SLICE:
            return array[tuple(slice(begin, end) for begin, end in self.numbers)]
        return array.reshape(self.numbers)


def view_of(value: Mapping[Any, Any], expression: Any, shape: tuple[int, ...]) -> View | None:
    """Return a tensor, in a shape of as many elements, as a view of what is computed for itself.

    None where not even the tensor itself is one in that shape, or its own shape is not known.

    Parameters
    ----------
    value : mapping
        What variables are bound to.
    expression : relax.Var or Constant
    """
    chain, last = [expression], _Move(RESHAPES[0], shape)
    while (call := value.get(chain[-1])) is not None and (scaled_by(call) or _move(call)):
        chain.append(call.args[0])
    for length in range(len(chain) - 1, -1, -1):  # a later tensor, from which on no copy is needed
        calls = [value[one] for one in chain[:length]][::-1]
        source, moves = chain[length], [move for call in calls if (move := _move(call))]
        places = _places(shape_of(source), [*moves, last])
        if places is not None and isinstance(source, (relax.Var, tvm.ir.Constant)):
            return View(source, places, math.prod(scaled_by(call) or 1.0 for call in calls))
    return None


def _places(shape: tuple[int, ...] | None, moves: Sequence[_Move]) -> Strided | None:
    """Return where the elements of a tensor of a shape are after moves; None if they have to be copied."""
    if shape is None:
        return None
    base: NDArray[np.uint8] = np.empty(shape, "uint8")
    array = base
    for move, after in zip(moves, (*moves[1:], None), strict=True):
        if move.operator in RESHAPES and after is not None and after.operator in RESHAPES:
            continue  # the next one alone tells the shape
        array = move.of(array)
        if not np.may_share_memory(array, base):
            return None
    return Strided(array.ctypes.data - base.ctypes.data, _strides(array))


def _strides(array: NDArray[np.uint8]) -> tuple[int, ...]:
    return tuple(
        0 if extent == 1 else stride for extent, stride in zip(array.shape, array.strides, strict=True)
    )


def broadcast(expression: Any, shape: tuple[int, ...]) -> View | None:
    """Return a float32 tensor as a view of a shape to which operators broadcast it."""
    own = shape_of(expression)
    if own is None or str(expression.ty.dtype) != "float32":
        return None
    return View(expression, Strided(0, _strides(np.broadcast_to(np.empty(own, "uint8"), shape))))


def scaled_by(call: Any) -> float | None:
    """Return the number by which a call multiplies its tensor; None if that is not all that it does."""
    name = _name(call)
    if name not in ("relax.multiply", "relax.divide") or not isinstance(call.args[1], tvm.ir.Constant):
        return None
    numbers = call.args[1].value.numpy().reshape(-1)
    if len(numbers) != 1 or str(call.ty.dtype) != "float32" or shape_of(call) != shape_of(call.args[0]):
        return None
    number = float(numbers[0])
    return number if name == "relax.multiply" else 1.0 / number if number else None


def is_reshape(call: Any) -> bool:
    """Whether a call gives its tensor's elements, in their order, another shape."""
    return _name(call) in RESHAPES and _move(call) is not None


def _name(call: Any) -> str:
    return str(getattr(call.op, "name", "")) if isinstance(call, relax.Call) else ""


def _move(call: Any) -> _Move | None:
    """Return how a call moves elements; None if it does anything else."""
    name = _name(call)
    if name not in (*RESHAPES, PERMUTATION, SLICE):
        return None
    given, shape = shape_of(call.args[0]), shape_of(call)
    if given is None or shape is None:
        return None
    if name == PERMUTATION:
        axes = call.attrs.axes
        return _Move(name, tuple(range(len(given)))[::-1] if axes is None else tuple(map(int, axes)))
    if name == SLICE:
        return _slice(call, given, shape)
    return _Move(name, shape) if math.prod(given) == math.prod(shape) else None


def _slice(call: Any, given: tuple[int, ...], shape: tuple[int, ...]) -> _Move | None:
    """Return what `strided_slice` takes, if its bounds are numbers and its steps are 1."""
    try:
        axes, begins, ends, *steps = ([int(each.value) for each in part.fields] for part in call.args[1:])
    except AttributeError:  # a bound is computed
        return None
    if any(step != 1 for part in steps for step in part):
        return None
    bounds = [(0, extent) for extent in given]
    for axis, begin, end in zip(axes, begins, ends, strict=True):
        extent = given[axis]
        first, last = (place + extent if place < 0 else min(place, extent) for place in (begin, end))
        bounds[axis] = (first, last)
    taken = tuple(last - first for first, last in bounds)
    return _Move(SLICE, tuple(bounds)) if taken == shape else None


def result_view(graph: Any, variable: Any, shape: tuple[int, ...]) -> tuple[list[Any], Strided] | None:
    """Return to which tensors a variable is moved, the last one's elements being in the places of `shape`.

    The first of these is the variable itself. None where not even it is a view of that shape.

    Parameters
    ----------
    graph : Rewriter
    shape : tuple of int
        Of the variable's elements, in other axes.
    """
    chain = [variable]
    while len(readers := graph.readers.get(chain[-1], ())) == 1 and readers[0] is not None:
        move = _move(graph.value[readers[0]])
        if move is None or move.operator == SLICE:
            break
        chain.append(readers[0])
    while chain:
        back = []
        for before, after in zip(chain[-2::-1], chain[:0:-1], strict=True):
            move = _move(graph.value[after])
            if move is not None and move.operator == PERMUTATION:
                back.append(_Move(PERMUTATION, tuple(map(int, np.argsort(move.numbers)))))
            else:
                back.append(_Move(RESHAPES[0], shape_of(before) or ()))
        places = _places(shape_of(chain[-1]), [*back, _Move(RESHAPES[0], shape)])
        if places is not None:
            return chain, places
        chain.pop()
    return None
