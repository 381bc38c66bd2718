"""Split vector loops that run over the ends of rows into vectors within rows, for CPUs.

MetaSchedule fuses an elementwise function's loops and vectorises 64 turns of the fused one. Where rows are
no multiple of 64 long, as the 144 channels of a gate, a value that depends on the place in the row has no
stride: LLVM gathers it one element after the other. A vector of the greatest common divisor of both lengths
never crosses a row, so its remainder is a stride of one and its quotient one number. So are conditions on the
place: the bound of fused loops of no multiple of 64 turns, the tensor of a concatenation, the border of an
image.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from wmsched.codegen.nodes import (
    SERIAL,
    VECTORIZED,
    const_extent,
    dtype_of,
    is_call,
    loop,
    on_threads_of_gpu,
    operands,
    tir,
    with_children,
)
from wmsched.codegen.nodes import with_operands as rebuilt

COMPARISONS = (tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ, tir.NE)
MIN_LANES = 4  # of an SSE vector of float32; narrower ones gain nothing


def in_rows(function: Any) -> Any:
    """Return the function with such loops split; unchanged if it has none or runs on a GPU."""
    if on_threads_of_gpu(function.body):
        return function
    body = _rewritten(function.body)
    return function if body.same_as(function.body) else function.with_body(body)


def _rewritten(node: Any) -> Any:
    if isinstance(node, tir.For) and node.kind == VECTORIZED:
        return _within_rows(node) or node
    return with_children(node, _rewritten)


def _within_rows(node: Any) -> Any:
    """Return a vector loop as a loop over vectors within rows; None for a loop that needs none."""
    extent, bound, body = const_extent(node), None, node.body
    if isinstance(body, tir.IfThenElse) and body.else_case is None:
        bound, body = body.condition, body.then_case
    stores = list(body.seq) if isinstance(body, tir.SeqStmt) else [body]
    if extent is None or not all(isinstance(store, tir.BufferStore) for store in stores):
        return None
    parts = [part for store in stores for part in (store.value, *store.indices)]
    parts += [] if bound is None else [bound]
    if not all(map(_is_known, parts)):
        return None
    rows = set().union(*(_cuts(part, node.loop_var) for part in parts))
    crossed = [row for row in rows if row % extent and extent % row]
    lanes = math.gcd(extent, *crossed)
    if not crossed or lanes < MIN_LANES:
        return None
    split = _Split(node.loop_var, lanes)
    made = [
        tir.BufferStore(store.buffer, split.of(store.value), [split.of(index) for index in store.indices])
        for store in stores
    ]
    inner = loop(split.lane, lanes, VECTORIZED, made[0] if len(made) == 1 else tir.SeqStmt(made))
    if bound is not None:
        holds = split.of(bound)
        if _uses(holds, split.lane):
            return None
        inner = tir.IfThenElse(holds, inner, None)
    return loop(split.turn, extent // lanes, SERIAL, inner)


def _inside(node: Any) -> list[Any] | None:
    """Return an expression's operands, those of conditions too; None for an unknown kind of expression."""
    if isinstance(node, (*COMPARISONS, tir.And, tir.Or)):
        return [node.a, node.b]
    if isinstance(node, tir.Not):
        return [node.a]
    if isinstance(node, tir.Select):
        return [node.condition, node.true_value, node.false_value]
    if _is_choice(node):
        return list(node.args)
    return operands(node)


def _is_choice(node: Any) -> bool:
    return is_call(node) and getattr(node.op, "name", "").split(".")[-1] == "if_then_else"


def _is_known(node: Any) -> bool:
    inner = _inside(node)
    return inner is not None and all(map(_is_known, inner))


def _uses(node: Any, variable: Any) -> bool:
    if isinstance(node, tir.Var):
        return bool(node.same_as(variable))
    return any(_uses(operand, variable) for operand in _inside(node) or [])


def _cuts(node: Any, variable: Any) -> set[int]:
    """Return the numbers that an expression divides `variable` by, or compares it with."""
    found = set().union(*(_cuts(operand, variable) for operand in _inside(node) or []))
    divides = isinstance(node, (tir.FloorDiv, tir.FloorMod)) and isinstance(node.b, tir.IntImm)
    if divides and _uses(node.a, variable):
        found.add(int(node.b))
    if isinstance(node, COMPARISONS):
        for one, other in ((node.a, node.b), (node.b, node.a)):
            if isinstance(other, tir.IntImm) and int(other) and _varies(one, variable):
                found.add(abs(int(other)))
    return found


def _varies(node: Any, variable: Any) -> bool:
    """Whether an expression is another in each lane of a short vector: a quotient counts rows."""
    if isinstance(node, tir.FloorDiv) and isinstance(node.b, tir.IntImm) and int(node.b) >= MIN_LANES:
        return False
    if isinstance(node, tir.Var):
        return bool(node.same_as(variable))
    return any(_varies(operand, variable) for operand in _inside(node) or [])


class _Parts(NamedTuple):
    """An index as coarse * lanes + fine, with fine below lanes."""

    coarse: Any
    fine: Any


class _Split:
    """Replaces a vector loop's variable by turn * lanes + lane, which divisions by multiples of lanes use."""

    def __init__(self, variable: Any, lanes: int) -> None:
        self.variable, self.lanes = variable, lanes
        self.dtype = dtype_of(variable)
        self.turn, self.lane = tir.Var("turn", self.dtype), tir.Var("lane", self.dtype)

    def _number(self, value: int) -> Any:
        return tir.IntImm(self.dtype, value)

    def of(self, node: Any) -> Any:
        """Return an expression of the two new variables."""
        if isinstance(node, tir.Var):
            whole = tir.Add(tir.Mul(self.turn, self._number(self.lanes)), self.lane)
            return whole if node.same_as(self.variable) else node
        if isinstance(node, (tir.FloorDiv, tir.FloorMod)) and (parts := self._divided(node)) is not None:
            coarse, fine = parts
            return coarse if fine is None else tir.Add(tir.Mul(coarse, self._number(self.lanes)), fine)
        if isinstance(node, COMPARISONS):
            return self._compared(node)
        if isinstance(node, (tir.And, tir.Or)):
            return type(node)(self.of(node.a), self.of(node.b))
        if isinstance(node, tir.Not):
            return tir.Not(self.of(node.a))
        if isinstance(node, tir.Select):
            return tir.Select(*map(self.of, _inside(node) or []))
        if _is_choice(node):
            return tir.call_intrin(dtype_of(node), node.op, *map(self.of, node.args))
        return rebuilt(node, self.of)

    def _compared(self, node: Any) -> Any:
        """Return a comparison of multiples of the lanes, where that decides it for all lanes."""
        one, other = self._parts(node.a), self._parts(node.b)
        if one is not None and other is not None and dtype_of(node.a) == self.dtype:
            left, right = _uses(one.fine, self.lane), _uses(other.fine, self.lane)
            # coarse * lanes + lane is below, or not below, a multiple of the lanes in all lanes alike
            alike = not left and not right
            alike |= left and not right and isinstance(node, (tir.LT, tir.GE))
            alike |= right and not left and isinstance(node, (tir.LE, tir.GT))
            if alike:
                return type(node)(one.coarse, other.coarse)
        return type(node)(self.of(node.a), self.of(node.b))

    def _divided(self, node: Any) -> _Parts | None:
        """Return a quotient, without a fine part, or a remainder by a multiple of lanes; None for others."""
        if not isinstance(node.b, tir.IntImm) or int(node.b) % self.lanes or dtype_of(node) != self.dtype:
            return None
        parts = self._parts(node.a)
        if parts is None:
            return None
        by = self._number(int(node.b) // self.lanes)
        if isinstance(node, tir.FloorDiv):
            return _Parts(tir.FloorDiv(parts.coarse, by), None)
        return _Parts(tir.FloorMod(parts.coarse, by), parts.fine)

    def _parts(self, node: Any) -> _Parts | None:
        """Return an index in parts; None where it is not known to be of this form."""
        zero = self._number(0)
        if isinstance(node, tir.Var) and node.same_as(self.variable):
            return _Parts(self.turn, self.lane)
        if isinstance(node, tir.IntImm):
            coarse, rest = divmod(int(node), self.lanes)
            return _Parts(self._number(coarse), zero) if not rest else None
        if isinstance(node, tir.Mul) and isinstance(node.b, tir.IntImm) and not int(node.b) % self.lanes:
            factor = self.of(node.a)
            by = int(node.b) // self.lanes
            return None if _uses(factor, self.lane) else _Parts(tir.Mul(factor, self._number(by)), zero)
        if isinstance(node, (tir.Add, tir.Sub)):
            return self._sum(node)
        if isinstance(node, tir.FloorMod):
            return self._divided(node)
        return None

    def _sum(self, node: Any) -> _Parts | None:
        one, other = self._parts(node.a), self._parts(node.b)
        if one is None or other is None:
            return None
        left, right = _uses(one.fine, self.lane), _uses(other.fine, self.lane)
        if right and (left or isinstance(node, tir.Sub)):
            return None
        return _Parts(type(node)(one.coarse, other.coarse), other.fine if right else one.fine)
