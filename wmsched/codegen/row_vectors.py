"""Split vector loops that run over the ends of rows into vectors within rows, for CPUs.

MetaSchedule fuses an elementwise function's loops and vectorises 64 turns of the fused one. Where rows are
no multiple of 64 long, as the 144 channels of a gate, a value that depends on the place in the row has no
stride: LLVM gathers it one element after the other, and the function takes seven times as long. A vector of
the greatest common divisor of both lengths never crosses a row, so its remainder is a stride of one and its
quotient one number. So is a bound that fused loops of no multiple of 64 turns are checked against.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from wmsched.codegen.nodes import (
    SERIAL,
    VECTORIZED,
    const_extent,
    dtype_of,
    is_known_expr,
    loop,
    on_threads_of_gpu,
    operands,
    tir,
    uses_var,
    with_children,
    with_operands,
)

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
        if not isinstance(bound, tir.LT) or not isinstance(bound.b, tir.IntImm):
            return None
    stores = list(body.seq) if isinstance(body, tir.SeqStmt) else [body]
    if extent is None or not all(isinstance(store, tir.BufferStore) for store in stores):
        return None
    parts = [part for store in stores for part in (store.value, *store.indices)]
    if not all(map(is_known_expr, parts)):
        return None
    rows = set().union(*(_divisors(part, node.loop_var) for part in parts))
    if bound is not None:
        rows.add(int(bound.b))
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
        if (holds := split.below(bound)) is None:
            return None
        inner = tir.IfThenElse(holds, inner, None)
    return loop(split.turn, extent // lanes, SERIAL, inner)


def _divisors(node: Any, variable: Any) -> set[int]:
    """Return the constants that an expression divides `variable` by, for a quotient or a remainder."""
    found = set().union(*(_divisors(operand, variable) for operand in operands(node) or []))
    divides = isinstance(node, (tir.FloorDiv, tir.FloorMod)) and isinstance(node.b, tir.IntImm)
    if divides and uses_var(node.a, variable):
        found.add(int(node.b))
    return found


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
        return with_operands(node, self.of)

    def below(self, bound: Any) -> Any:
        """Return "index < number" without the lane; None where it depends on it."""
        parts = self._parts(bound.a)
        if parts is None or int(bound.b) % self.lanes:
            return None
        return tir.LT(parts.coarse, tir.IntImm(dtype_of(bound.b), int(bound.b) // self.lanes))

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
            return None if uses_var(factor, self.lane) else _Parts(tir.Mul(factor, self._number(by)), zero)
        if isinstance(node, tir.Add):
            one, other = self._parts(node.a), self._parts(node.b)
            if (
                one is None
                or other is None
                or (uses_var(one.fine, self.lane) and uses_var(other.fine, self.lane))
            ):
                return None
            fine = other.fine if uses_var(other.fine, self.lane) else one.fine
            return _Parts(tir.Add(one.coarse, other.coarse), fine)
        if isinstance(node, tir.FloorMod):
            return self._divided(node)
        return None
