"""Views: which elements of a tensor a chain of reshapes, transposes and slices has, by numpy's strides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from wmsched.relax.attention.kernel import Shape, View
from wmsched.relax.int8.constants import operator
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["RESHAPES", "Bindings", "Seen", "in_four", "moved", "seen", "undone"]

RESHAPES = frozenset(f"relax.{name}" for name in ("expand_dims", "flatten", "reshape", "squeeze"))
PERMUTE, BROADCAST, SLICE = "relax.permute_dims", "relax.broadcast_to", "relax.strided_slice"
SPLIT, CAST, MULTIPLY = "relax.split", "relax.astype", "relax.multiply"
HALF = ("float16", "bfloat16")

Lies = NDArray[np.uint8]  # one byte for an element: its strides are in elements


@dataclass(frozen=True)
class Seen:
    """A tensor as part of another.

    Parameters
    ----------
    base : expression
    whole, lies : array
        Of the base's shape, and the part. Nothing is ever written into them.
    dtype : str
        What the base's numbers are rounded to.
    factor : float
        By which the tensor's numbers are multiplied.
    """

    base: Any
    whole: Lies
    lies: Lies
    dtype: str
    factor: float = 1.0

    @property
    def view(self) -> View:
        """The view of a part of four axes."""
        start = self.lies.__array_interface__["data"][0] - self.whole.__array_interface__["data"][0]
        shape = tuple(self.whole.shape)
        strides = [0 if extent == 1 else stride for extent, stride in zip(self.lies.shape, self.lies.strides)]
        strides[3] = 1 if self.lies.shape[3] == 1 else self.lies.strides[3]
        batch, head, row, column = strides
        return View(shape, self.dtype, (batch, head, row, column), start)


class Bindings:
    """What a function's variables are bound to, and who reads them."""

    def __init__(self, bindings: Sequence[Any], result: Any) -> None:
        self.values = {binding.var: binding.value for binding in bindings}
        self.readers: dict[Any, list[Any]] = {}
        for binding in bindings:
            for one in _read(binding.value):
                self.readers.setdefault(one, []).append(binding.var)
        for one in _read(result):
            self.readers.setdefault(one, []).append(None)

    def root(self, expression: Any) -> Any:
        """Return the variable or constant that an expression is another name of."""
        while isinstance(expression, relax.Var) and isinstance(self.values.get(expression), relax.Var):
            expression = self.values[expression]
        return expression

    def value(self, expression: Any) -> Any:
        """Return what computes an expression; itself where nothing does."""
        found = self.root(expression)
        return self.values.get(found, found) if isinstance(found, relax.Var) else found

    def name(self, expression: Any) -> str:
        """Return the name of the operator that computes an expression; "" for anything else."""
        return operator(self.value(expression))

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
        return found.value.numpy() if is_tensor else None


def _read(expression: Any) -> Iterator[Any]:
    if isinstance(expression, relax.Var):
        yield expression
    elif isinstance(expression, relax.Call):
        for operand in expression.args:
            yield from _read(operand)
    elif isinstance(expression, relax.Tuple):
        for operand in expression.fields:
            yield from _read(operand)
    elif isinstance(expression, relax.TupleGetItem):
        yield from _read(expression.tuple_value)


def reshaped(lies: Lies, shape: Shape) -> Lies | None:
    """Return a part in another shape; None where its elements would have no strides."""
    found = lies.reshape(shape)
    return found if lies.size == 0 or np.may_share_memory(found, lies) else None


def moved(call: Any, lies: Lies) -> Lies | None:
    """Return the part that an operator makes of a part; None of others than moves."""
    name, shape = operator(call), shape_of(call)
    if shape is None:
        return None
    if name in RESHAPES:
        return reshaped(lies, shape)
    if name == PERMUTE:
        axes = call.attrs.axes
        return lies.transpose(None if axes is None else [int(axis) for axis in axes])
    if name == BROADCAST:
        return np.broadcast_to(lies, shape)
    return _sliced(call, lies) if name == SLICE else None


def undone(call: Any, lies: Lies) -> Lies | None:
    """Return the part that an operator makes a given part of; None of others than moves of all elements."""
    name, shape = operator(call), shape_of(call.args[0])
    if shape is None:
        return None
    if name in RESHAPES or (name == BROADCAST and shape == shape_of(call)):
        return reshaped(lies, shape)
    if name == PERMUTE:
        axes = call.attrs.axes
        order = list(range(lies.ndim))[::-1] if axes is None else [int(axis) % lies.ndim for axis in axes]
        return lies.transpose(np.argsort(order))
    return lies if name == CAST else None


def _sliced(call: Any, lies: Lies) -> Lies | None:
    """Return a slice by numbers."""
    given = []
    for operand in call.args[1:]:
        fields: list[Any] = list(operand.fields) if isinstance(operand, relax.Tuple) else [operand]
        numbers = [getattr(one, "value", None) for one in fields]
        if not all(isinstance(number, int) for number in numbers):
            return None
        given.append([int(number) for number in numbers if number is not None])
    axes, begins, ends, *more = given
    steps = more[0] if more else [1] * len(axes)
    if min(steps, default=1) < 1:
        return None
    cuts = {axis % lies.ndim: slice(*cut) for axis, *cut in zip(axes, begins, ends, steps)}
    return lies[tuple(cuts.get(k, slice(None)) for k in range(lies.ndim))]


def seen(given: Bindings, expression: Any) -> Iterator[Seen]:
    """Yield a tensor as part of itself, of what it is moved from, and so on."""
    shape = shape_of(expression)
    if shape is None:
        return
    own = np.empty(shape, np.uint8)
    yield Seen(given.root(expression), own, own, str(expression.ty.dtype))
    call = given.value(expression)
    if isinstance(call, relax.TupleGetItem):
        yield from _part_of_split(given, call)
        return
    name = operator(call)
    if name == MULTIPLY:
        for one, other in ((0, 1), (1, 0)):
            number = given.number(call.args[other])
            if number is not None and shape_of(call.args[one]) == shape:
                for each in seen(given, call.args[one]):
                    yield replace(each, factor=each.factor * number)
                return
    elif name == CAST:
        source, dtype = (str(one.ty.dtype) for one in (call.args[0], call))
        if source in HALF and dtype == "float32":  # products of half floats are exact in float32
            yield from seen(given, call.args[0])
        elif source == "float32" and dtype in HALF:  # moves of rounded numbers are rounded moves
            for each in seen(given, call.args[0]):
                yield replace(each, dtype=dtype)
    elif name:
        for each in seen(given, call.args[0]) if name in (*RESHAPES, PERMUTE, BROADCAST, SLICE) else ():
            lies = moved(call, each.lies)
            if lies is not None and lies.shape == shape:
                yield replace(each, lies=lies)


def _part_of_split(given: Bindings, item: Any) -> Iterator[Seen]:
    call = given.value(item.tuple_value)
    if operator(call) != SPLIT:
        return
    axis, ends = int(call.attrs.axis), call.attrs.indices_or_sections
    whole = shape_of(call.args[0])
    if whole is None:
        return
    if hasattr(ends, "value"):
        each = whole[axis] // int(ends.value)
        bounds = [*range(0, whole[axis], each), whole[axis]]
    else:
        bounds = [0, *(int(one) for one in ends), whole[axis]]
    begin, end = bounds[item.index], bounds[item.index + 1]
    for one in seen(given, call.args[0]):
        cut = [slice(None)] * one.lies.ndim
        cut[axis] = slice(begin, end)
        yield replace(one, lies=one.lies[tuple(cut)])


def in_four(lies: Lies, batch: int, heads: int) -> Lies | None:
    """Return a part of matrices, in whatever axes, as batches, heads, rows and columns."""
    if lies.ndim < 2 or lies.ndim > 4:
        return None
    if lies.ndim == 4:
        return lies if lies.shape[:2] == (batch, heads) else None
    if math.prod(lies.shape[:-2]) != batch * heads:
        return None
    return reshaped(lies, (batch, heads, *lies.shape[-2:]))
