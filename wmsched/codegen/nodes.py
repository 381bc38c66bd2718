"""Visit, rebuild and analyse flat loop nests of either TVM, with indices affine in the loops.

MetaSchedule's TVM has no Python visitors, and AutoScheduler's has other statements. This module knows the few
kinds of nodes in flat loop nests and leaves other nodes unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

try:
    from tvm import tirx as tir
except ImportError:  # AutoScheduler's TVM has the older name
    from tvm import tir

MODERN = tir.__name__.endswith("tirx")  # MetaSchedule's TVM: buffers are variables, loads are TensorLoad
SERIAL, VECTORIZED = tir.ForKind.SERIAL, tir.ForKind.VECTORIZED
PURE = ("exp", "tanh", "erf", "log", "sqrt", "rsqrt", "sigmoid", "fabs")  # calls that work lane by lane

_BINARY = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Max, tir.Min, tir.FloorDiv, tir.FloorMod)


# --- statements ---------------------------------------------------------------------------------------------


def on_threads_of_gpu(node: Any) -> bool:
    """Return whether a nest's loops are bound to GPU threads."""
    if isinstance(node, tir.For):
        return node.kind == tir.ForKind.THREAD_BINDING or on_threads_of_gpu(node.body)
    if isinstance(node, tir.AttrStmt) and node.attr_key in ("thread_extent", "virtual_thread"):
        return True
    return any(on_threads_of_gpu(part) for part in children(node))


def children(node: Any) -> list[Any]:
    """Return the statements directly within a statement."""
    if isinstance(node, tir.SeqStmt):
        return list(node.seq)
    if isinstance(node, tir.IfThenElse):
        return [part for part in (node.then_case, node.else_case) if part is not None]
    body = getattr(node, "body", None)
    return [] if body is None else [body]


def with_children(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a statement with `change` applied to its children; itself if unchanged or unknown."""
    old = children(node)
    new = [change(part) for part in old]
    if all(one is other for one, other in zip(new, old)):
        return node
    if isinstance(node, tir.SeqStmt):
        return tir.SeqStmt(new)
    if isinstance(node, tir.IfThenElse):
        return tir.IfThenElse(node.condition, new[0], new[1] if len(new) > 1 else None)
    (body,) = new
    if isinstance(node, tir.For):
        return loop(node.loop_var, node.extent, node.kind, body, like=node)
    if isinstance(node, tir.AttrStmt):
        return tir.AttrStmt(node.node, node.attr_key, node.value, body)
    if is_a(node, "LetStmt"):
        return tir.LetStmt(node.var, node.value, body)
    if is_a(node, "Allocate"):
        notes = dict(node.annotations.items())
        return tir.Allocate(node.buffer_var, node.dtype, node.extents, node.condition, body, notes)
    return node


def is_a(node: Any, name: str) -> bool:
    """Return whether a node is of a class that may exist in only one of the TVMs."""
    kind = getattr(tir, name, None)
    return isinstance(kind, type) and isinstance(node, kind)


def loop(variable: Any, extent: Any, kind: Any, body: Any, *, like: Any = None) -> Any:
    """Return a loop from 0; with `like`, one with that loop's start, step, thread and annotations."""
    if like is None:
        return tir.For(variable, 0, extent, kind, body)
    more = {"step": like.step} if MODERN else {}
    notes = dict(like.annotations.items())
    return tir.For(variable, like.min, extent, kind, body, like.thread_binding, notes, **more)


def const_extent(node: Any) -> int | None:
    """Return the iteration count of a loop from 0 by step 1; None if unknown or for other loops."""
    if getattr(node, "step", None) is not None or not isinstance(node.extent, tir.IntImm):
        return None
    return int(node.extent) if isinstance(node.min, tir.IntImm) and int(node.min) == 0 else None


# --- buffers ---------------------------------------------------------------------------------------------


def is_load(node: Any) -> bool:
    """Return whether an expression is a buffer load."""
    return type(node).__name__ == ("TensorLoad" if MODERN else "BufferLoad")


def loaded(load: Any) -> Any:
    """Return the buffer of a load."""
    return load.source if MODERN else load.buffer


def name_of(buffer: Any) -> str:
    """Return the name of a buffer's memory."""
    return str(buffer.name if MODERN else buffer.data.name)


def allocated(node: Any) -> str:
    """Return the name of the memory that a statement allocates; "" for other statements."""
    if is_a(node, "AllocBuffer"):
        return name_of(node.buffer)
    return str(node.buffer_var.name) if is_a(node, "Allocate") else ""


def size_of(buffer: Any) -> float:
    """Return a buffer's number of elements; infinite if unknown."""
    known = all(isinstance(extent, tir.IntImm) for extent in buffer.shape)
    return math.prod(int(extent) for extent in buffer.shape) if known else math.inf


def same_storage(one: Any, other: Any) -> bool:
    """Return whether two buffers share memory."""
    return bool(one.same_as(other) if MODERN else one.data.same_as(other.data))


def parameters(function: Any) -> list[Any]:
    """Return a function's parameter buffers, under every name that its nests use."""
    if not MODERN:
        return list(function.buffer_map.values())
    given = [variable for variable in function.params if hasattr(variable, "shape")]
    found = list(given)

    def look(node: Any) -> None:
        if is_a(node, "DeclBuffer"):  # a flat alias of the parameter
            args = getattr(node.data, "args", ())
            if args and any(args[0].same_as(buffer) for buffer in given):
                found.append(node.buffer)
        for part in children(node):
            look(part)

    look(function.body)
    return found


def dtype_of(node: Any) -> str:
    """Return an expression's type, such as "float32x16"."""
    return str(node.ty.dtype) if MODERN else str(node.dtype)


# --- expressions --------------------------------------------------------------------------------------------


def is_call(node: Any) -> bool:
    """Return whether an expression is an operator call."""
    return type(node).__name__ == "Call"


def operands(node: Any) -> list[Any] | None:
    """Return an expression's operands; None for an unknown kind of expression."""
    if isinstance(node, (tir.IntImm, tir.FloatImm, tir.Var)):
        return []
    if isinstance(node, _BINARY):
        return [node.a, node.b]
    if is_load(node):
        return list(node.indices) if getattr(node, "predicate", None) is None else None
    if isinstance(node, tir.Cast):
        return [node.value]
    if is_call(node) and getattr(node.op, "name", "").split(".")[-1] in PURE:
        return list(node.args)
    return None


def is_known_expr(node: Any) -> bool:
    """Return whether this module knows every node of an expression."""
    inner = operands(node)
    return inner is not None and all(map(is_known_expr, inner))


def with_operands(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return an expression with `change` applied to its operands; itself if nothing changed."""
    old = operands(node) or []
    new = [change(operand) for operand in old]
    if all(one is other for one, other in zip(new, old)):
        return node
    if is_load(node):
        return tir.BufferLoad(loaded(node), new)
    if isinstance(node, tir.Cast):
        return tir.Cast(dtype_of(node), new[0])
    if is_call(node):
        return tir.call_intrin(dtype_of(node), node.op, *new)
    return type(node)(*new)


def substitute(node: Any, variable: Any, value: Any) -> Any:
    """Return the expression with `variable` replaced by `value`."""
    if isinstance(node, tir.Var):
        return value if node.same_as(variable) else node
    return with_operands(node, lambda operand: substitute(operand, variable, value))


def uses_var(node: Any, variable: Any) -> bool:
    """Return whether an expression depends on a variable; True if unknown."""
    if isinstance(node, tir.Var):
        return bool(node.same_as(variable))
    inner = operands(node)
    return inner is None or any(uses_var(operand, variable) for operand in inner)


def free_of(node: Any, variable: Any) -> bool:
    """Return whether a statement or expression does not depend on a variable; False if unknown."""
    if isinstance(node, tir.BufferStore):
        return all(free_of(each, variable) for each in (node.value, *node.indices))
    if isinstance(node, tir.For):
        return all(free_of(each, variable) for each in (node.min, node.extent, node.body))
    if isinstance(node, (tir.SeqStmt, tir.AttrStmt)) or is_a(node, "Allocate") or is_a(node, "AllocBuffer"):
        return all(free_of(part, variable) for part in children(node))
    if isinstance(node, tir.Var):
        return not node.same_as(variable)
    inner = operands(node)
    return inner is not None and all(free_of(each, variable) for each in inner)


def reads(value: Any, name: str) -> bool:
    """Return whether an expression loads from the memory of that name."""
    if is_load(value) and name_of(loaded(value)) == name:
        return True
    return any(reads(operand, name) for operand in operands(value) or [])


def coefficient(index: Any, variable: Any) -> int | None:
    """Return the growth of an index when `variable` grows by 1; None if it is not constant."""
    if isinstance(index, tir.Var):
        return int(bool(index.same_as(variable)))
    if isinstance(index, (tir.Add, tir.Sub)):
        one, other = coefficient(index.a, variable), coefficient(index.b, variable)
        if one is None or other is None:
            return None
        return one + other if isinstance(index, tir.Add) else one - other
    if isinstance(index, tir.Mul):
        for one, other in ((index.a, index.b), (index.b, index.a)):
            if isinstance(other, tir.IntImm):
                step = coefficient(one, variable)
                return None if step is None else step * int(other)
    known = operands(index)
    return 0 if known is not None and not uses_var(index, variable) and _loads_nothing(index) else None


def _loads_nothing(index: Any) -> bool:
    inner = operands(index)
    return not is_load(index) and inner is not None and all(map(_loads_nothing, inner))


def same(one: Any, other: Any) -> bool:
    """Return whether two known expressions are structurally equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tir.Var):
        return bool(one.same_as(other))
    if isinstance(one, (tir.IntImm, tir.FloatImm)):
        return bool(one.value == other.value)
    if is_load(one) and not same_storage(loaded(one), loaded(other)):
        return False
    if is_call(one) and not one.op.same_as(other.op):
        return False
    mine, theirs = operands(one), operands(other)
    if mine is None or theirs is None or len(mine) != len(theirs):
        return False
    return all(map(same, mine, theirs))


# --- indices ------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A loop, or one of the loops that a fused loop was made of."""

    loop: Any
    value: Any  # its index, as an expression of the loop's variable
    extent: int
    apart: int  # growth of the loop's variable with it


def steps_of(index: Any, loops: Sequence[Any]) -> list[Step]:
    """Return the loops as steps, outermost first; a fused loop as the parts that `index` divides it into."""
    steps = []
    for each in loops:
        variable, extent = each.loop_var, int(each.extent)
        number = partial(tir.IntImm, dtype_of(variable))
        cuts = sorted({extent, 1, *_split_points(index, variable)}, reverse=True)
        if extent == 1 or any(long % short for long, short in pairwise(cuts)):
            cuts = [extent, 1]
        for long, short in pairwise(cuts):
            value = variable if long == extent else tir.FloorMod(variable, number(long))
            if short > 1:
                value = tir.FloorDiv(value, number(short))
            steps.append(Step(each, value, long // short, short))
    return steps


def _split_points(index: Any, variable: Any) -> set[int]:
    """Return the divisors at which an index splits a variable by quotient and remainder."""
    found = set().union(*(_split_points(operand, variable) for operand in operands(index) or []))
    if isinstance(index, (tir.FloorDiv, tir.FloorMod)) and isinstance(index.b, tir.IntImm):
        scale = _scale(index.a, variable)
        if scale:
            found.add(scale * int(index.b))
    return found


def _scale(node: Any, variable: Any) -> int:
    """Return the product of a variable's divisors in a chain of quotients and remainders; 0 otherwise."""
    if isinstance(node, tir.Var):
        return int(bool(node.same_as(variable)))
    if isinstance(node, (tir.FloorDiv, tir.FloorMod)) and isinstance(node.b, tir.IntImm):
        return _scale(node.a, variable) * (int(node.b) if isinstance(node, tir.FloorDiv) else 1)
    return 0


def affine(index: Any, steps: Sequence[Step]) -> tuple[list[int], Any] | None:
    """Return an index's growth with each step and its value at 0; None if it is not affine."""
    found = _terms(index, steps)
    if found is None:
        return None
    strides, base = found
    return strides, tir.IntImm(dtype_of(index), base)


def _terms(index: Any, steps: Sequence[Step]) -> tuple[list[int], int] | None:
    if isinstance(index, tir.IntImm):
        return [0] * len(steps), int(index)
    if isinstance(index, tir.Var):
        mine = [step.apart if step.loop.loop_var.same_as(index) else 0 for step in steps]
        return (mine, 0) if any(mine) else None
    if not isinstance(index, (tir.Add, tir.Sub, tir.Mul, tir.FloorDiv, tir.FloorMod)):
        return None
    one, other = _terms(index.a, steps), _terms(index.b, steps)
    if one is None or other is None:
        return None
    if isinstance(index, (tir.Add, tir.Sub)):
        sign = 1 if isinstance(index, tir.Add) else -1
        return [a + sign * b for a, b in zip(one[0], other[0])], one[1] + sign * other[1]
    if isinstance(index, tir.Mul) and not any(one[0]):
        one, other = other, one
    strides, by = other
    if any(strides):  # a product of two variables, or a division by a variable
        return None
    if isinstance(index, tir.Mul):
        return [by * stride for stride in one[0]], by * one[1]
    return _divide(one, by, steps, rest=isinstance(index, tir.FloorMod))


def _divide(
    terms: tuple[list[int], int], by: int, steps: Sequence[Step], *, rest: bool
) -> tuple[list[int], int] | None:
    """Return quotient or remainder (`rest`) of affine terms; None if the non-multiples may carry over."""
    strides, base = terms
    small = [0 if stride % by == 0 else stride for stride in strides]
    if min(small) < 0 or base % by + sum(s * (step.extent - 1) for s, step in zip(small, steps)) >= by:
        return None
    if rest:
        return small, base % by
    return [stride // by if stride % by == 0 else 0 for stride in strides], base // by
