"""Loop nests as TVM lowers them, of either TVM: walked, rebuilt, and indices read as affine in the loops.

MetaSchedule's TVM has no visitors for Python, AutoScheduler's other statements: here are the few kinds that
flat loop nests are made of. What is of another kind is left as it is.
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

MODERN = tir.__name__.endswith("tirx")  # where buffers are variables, and what is loaded of them tensors'
SERIAL, VECTORIZED = tir.ForKind.SERIAL, tir.ForKind.VECTORIZED
PURE = ("exp", "tanh", "erf", "log", "sqrt", "rsqrt", "sigmoid", "fabs")  # calls whose lanes are independent

_BINARY = (tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Max, tir.Min, tir.FloorDiv, tir.FloorMod)


# --- statements ---------------------------------------------------------------------------------------------


def on_threads_of_gpu(node: Any) -> bool:
    """Whether a nest's loops are a GPU's threads."""
    if isinstance(node, tir.For):
        return node.kind == tir.ForKind.THREAD_BINDING or on_threads_of_gpu(node.body)
    if isinstance(node, tir.AttrStmt) and node.attr_key in ("thread_extent", "virtual_thread"):
        return True
    return any(on_threads_of_gpu(part) for part in children(node))


def children(node: Any) -> list[Any]:
    """The statements within a statement."""
    if isinstance(node, tir.SeqStmt):
        return list(node.seq)
    if isinstance(node, tir.IfThenElse):
        return [part for part in (node.then_case, node.else_case) if part is not None]
    body = getattr(node, "body", None)
    return [] if body is None else [body]


def with_children(node: Any, change: Callable[[Any], Any]) -> Any:
    """A statement with each one within changed; itself if none is another, or it is not known here."""
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
    """Whether a node is of a class that only one of both TVMs has."""
    kind = getattr(tir, name, None)
    return isinstance(kind, type) and isinstance(node, kind)


def loop(variable: Any, extent: Any, kind: Any, body: Any, *, like: Any = None) -> Any:
    """A loop from 0; `like`: another, whose start, step, thread and annotations it has."""
    if like is None:
        return tir.For(variable, 0, extent, kind, body)
    more = {"step": like.step} if MODERN else {}
    notes = dict(like.annotations.items())
    return tir.For(variable, like.min, extent, kind, body, like.thread_binding, notes, **more)


def const_extent(node: Any) -> int | None:
    """How often a loop runs that starts at 0 and goes by 1; None of others, and where that is not known."""
    if getattr(node, "step", None) is not None or not isinstance(node.extent, tir.IntImm):
        return None
    return int(node.extent) if isinstance(node.min, tir.IntImm) and int(node.min) == 0 else None


# --- buffers ---------------------------------------------------------------------------------------------


def is_load(node: Any) -> bool:
    """Whether an expression is a load of a buffer, at `node.indices`."""
    return type(node).__name__ == ("TensorLoad" if MODERN else "BufferLoad")


def loaded(load: Any) -> Any:
    """The buffer that is loaded from."""
    return load.source if MODERN else load.buffer


def name_of(buffer: Any) -> str:
    """The name of a buffer's memory."""
    return str(buffer.name if MODERN else buffer.data.name)


def allocated(node: Any) -> str:
    """The name of the memory that a statement allocates; "" of others."""
    if is_a(node, "AllocBuffer"):
        return name_of(node.buffer)
    return str(node.buffer_var.name) if is_a(node, "Allocate") else ""


def size_of(buffer: Any) -> float:
    """How many elements a buffer has; infinite where that is not known."""
    known = all(isinstance(extent, tir.IntImm) for extent in buffer.shape)
    return math.prod(int(extent) for extent in buffer.shape) if known else math.inf


def same_storage(one: Any, other: Any) -> bool:
    """Whether two buffers are of the same memory."""
    return bool(one.same_as(other) if MODERN else one.data.same_as(other.data))


def parameters(function: Any) -> list[Any]:
    """The buffers that a function is given, as its nests name them."""
    if not MODERN:
        return list(function.buffer_map.values())
    given = [variable for variable in function.params if hasattr(variable, "shape")]
    found = list(given)

    def look(node: Any) -> None:
        if is_a(node, "DeclBuffer"):  # the same one, flat
            args = getattr(node.data, "args", ())
            if args and any(args[0].same_as(buffer) for buffer in given):
                found.append(node.buffer)
        for part in children(node):
            look(part)

    look(function.body)
    return found


def dtype_of(node: Any) -> str:
    """An expression's type, such as "float32x16"."""
    return str(node.ty.dtype) if MODERN else str(node.dtype)


# --- expressions --------------------------------------------------------------------------------------------


def is_call(node: Any) -> bool:
    """Whether an expression is a call of an operator."""
    return type(node).__name__ == "Call"


def operands(node: Any) -> list[Any] | None:
    """What an expression is made of; None for one that is not known here."""
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
    """Whether an expression is of what is known here through and through."""
    inner = operands(node)
    return inner is not None and all(map(is_known_expr, inner))


def with_operands(node: Any, change: Callable[[Any], Any]) -> Any:
    """An expression with each operand changed; itself if none of them is another."""
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
    """The expression with a value in the place of a variable."""
    if isinstance(node, tir.Var):
        return value if node.same_as(variable) else node
    return with_operands(node, lambda operand: substitute(operand, variable, value))


def uses_var(node: Any, variable: Any) -> bool:
    """Whether an expression depends on a variable; True where that is not known."""
    if isinstance(node, tir.Var):
        return bool(node.same_as(variable))
    inner = operands(node)
    return inner is None or any(uses_var(operand, variable) for operand in inner)


def free_of(node: Any, variable: Any) -> bool:
    """Whether a statement or an expression does not depend on a variable; False where that is not known."""
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
    """Whether an expression loads from memory of that name."""
    if is_load(value) and name_of(loaded(value)) == name:
        return True
    return any(reads(operand, name) for operand in operands(value) or [])


def coefficient(index: Any, variable: Any) -> int | None:
    """By how much an index grows with a variable each step; None where that is not the same for all."""
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
    """Whether two expressions that are known here are of the same variables, numbers and operations."""
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
    """A loop, or one of the several that a fused loop was made of."""

    loop: Any
    value: Any  # its number, of the loop's variable
    extent: int
    apart: int  # how much the loop's variable grows with it


def steps_of(index: Any, loops: Sequence[Any]) -> list[Step]:
    """The loops, outermost first; a fused one as those that the index takes it apart into."""
    steps = []
    for each in loops:
        variable, extent = each.loop_var, int(each.extent)
        number = partial(tir.IntImm, dtype_of(variable))
        cuts = sorted({extent, 1, *_cuts(index, variable)}, reverse=True)
        if extent == 1 or any(long % short for long, short in pairwise(cuts)):
            cuts = [extent, 1]
        for long, short in pairwise(cuts):
            value = variable if long == extent else tir.FloorMod(variable, number(long))
            if short > 1:
                value = tir.FloorDiv(value, number(short))
            steps.append(Step(each, value, long // short, short))
    return steps


def _cuts(index: Any, variable: Any) -> set[int]:
    """Where an index takes a variable apart, by quotients and remainders."""
    found = set().union(*(_cuts(operand, variable) for operand in operands(index) or []))
    if isinstance(index, (tir.FloorDiv, tir.FloorMod)) and isinstance(index.b, tir.IntImm):
        scale = _scale(index.a, variable)
        if scale:
            found.add(scale * int(index.b))
    return found


def _scale(node: Any, variable: Any) -> int:
    """By what a variable was divided, in an expression of quotients and rests of it alone; 0 in others."""
    if isinstance(node, tir.Var):
        return int(bool(node.same_as(variable)))
    if isinstance(node, (tir.FloorDiv, tir.FloorMod)) and isinstance(node.b, tir.IntImm):
        return _scale(node.a, variable) * (int(node.b) if isinstance(node, tir.FloorDiv) else 1)
    return 0


def affine(index: Any, steps: Sequence[Step]) -> tuple[list[int], Any] | None:
    """By how much an index grows with each step, and what it is where all are 0; None of other indices."""
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
    if any(strides):  # a product of two variables, or a division by one
        return None
    if isinstance(index, tir.Mul):
        return [by * stride for stride in one[0]], by * one[1]
    return _apart(one, by, steps, rest=isinstance(index, tir.FloorMod))


def _apart(
    terms: tuple[list[int], int], by: int, steps: Sequence[Step], *, rest: bool
) -> tuple[list[int], int] | None:
    """A quotient or the rest of a sum, where what is no multiple never reaches one."""
    strides, base = terms
    small = [0 if stride % by == 0 else stride for stride in strides]
    if min(small) < 0 or base % by + sum(s * (step.extent - 1) for s, step in zip(small, steps)) >= by:
        return None
    if rest:
        return small, base % by
    return [stride // by if stride % by == 0 else 0 for stride in strides], base // by
