"""Vectorise reductions along a loop with several vector accumulators.

LLVM may not reorder a sum. A sum along contiguous memory is a chain of additions of four cycles each, and so
is one that adds vector after vector to the same accumulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wmsched.codegen.nodes import (
    MODERN,
    SERIAL,
    VECTORIZED,
    coefficient,
    const_extent,
    dtype_of,
    free_of,
    is_known_expr,
    is_load,
    loaded,
    loop,
    name_of,
    reads,
    same,
    substitute,
    tir,
)
from wmsched.codegen.vectorize_values import LANES, TYPE, divisions, plain, reach

MIN_EXTENT = 16  # LLVM unrolls shorter reductions and vectorises a loop around them
MAX_ACCUMULATORS = 4  # vectors that a reduction adds to in turn: as many as an addition has cycles
MIN_STEPS = 4  # additions to each accumulator

IDENTITIES = {tir.Add: 0.0, tir.Max: -math.inf, tir.Min: math.inf}  # initial value of the lanes


def reduction(store: Any) -> Any:
    """Return the value that a statement reduces into its own target; None if it is no reduction."""
    value = store.value
    if type(value) not in IDENTITIES or len(store.indices) != 1:
        return None
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if not is_load(own) or not loaded(own).same_as(store.buffer):
            continue
        if same(own.indices[0], store.indices[0]):
            return other
    return None


def reduced(node: Any) -> Any:
    """Return a reduction along contiguous memory as a vector loop; None for another loop."""
    store, variable = plain(node), node.loop_var
    if store is None or int(node.extent) < MIN_EXTENT or coefficient(store.indices[0], variable) != 0:
        return None
    value = reduction(store)
    if value is None or reach(value, variable, store.buffer) != 1:
        return None
    return _reduce_in_lanes(node, store, type(store.value), value)


def _reduce_in_lanes(node: Any, store: Any, operation: Any, value: Any) -> Any:
    """Return ``store = operation(store, value)`` over the loop: vector part, fold by halves, remainder."""
    extent, variable = int(node.extent), node.loop_var
    vectors = MAX_ACCUMULATORS
    if extent % LANES == 0 and extent <= vectors * LANES:
        vectors = extent // LANES  # one turn
    while vectors > 1 and extent != vectors * LANES and extent < vectors * LANES * MIN_STEPS:
        vectors //= 2
    width = vectors * LANES
    turns, rest = divmod(extent, width)
    lanes = tir.decl_buffer((width,), TYPE, "lanes", scope="global")

    def at(turn: Any, lane: Any) -> Any:
        return divisions(substitute(value, variable, turn * width + lane), lane)

    def each(make: Callable[[Any], Any]) -> Any:
        lane = tir.Var("lane", dtype_of(variable))
        return loop(lane, width, VECTORIZED, tir.BufferStore(lanes, make(lane), [lane]))

    if turns == 1:
        statements = [each(lambda lane: at(0, lane))]
    else:
        turn = tir.Var("turn", dtype_of(variable))
        adding = each(lambda lane: operation(tir.BufferLoad(lanes, [lane]), at(turn, lane)))
        statements = [
            each(lambda lane: tir.FloatImm(TYPE, IDENTITIES[operation])),
            loop(turn, turns, SERIAL, adding),
        ]
    total = tir.BufferLoad(lanes, [tir.Ramp(0, 1, LANES)])
    for vector in range(1, vectors):
        total = operation(total, tir.BufferLoad(lanes, [tir.Ramp(vector * LANES, 1, LANES)]))
    index = list(store.indices)
    kept = tir.BufferLoad(store.buffer, index)
    folded = operation(kept, _fold(operation, total, LANES))
    statements.append(tir.BufferStore(store.buffer, folded, index))
    if rest:
        late = tir.Var("rest", dtype_of(variable))
        left = operation(kept, substitute(value, variable, late + (extent - rest)))
        tail = loop(late, rest, SERIAL, tir.BufferStore(store.buffer, left, index))
        statements.append(reduced(tail) or tail)
    return _allocate(lanes, width, statements)


def spread(node: Any) -> Any:
    """Return a loop that adds vector after vector, with several accumulators; None for another loop.

    An addition takes four cycles, during which a core could start seven others.
    """
    vector, count = node.body, const_extent(node)
    if node.kind != SERIAL or not isinstance(vector, tir.For) or vector.kind != VECTORIZED or count is None:
        return None
    store, width = vector.body, const_extent(vector)
    if not isinstance(store, tir.BufferStore) or dtype_of(store.value) != TYPE or width is None:
        return None
    value = reduction(store)
    if value is None or width > LANES or count < MAX_ACCUMULATORS * MIN_STEPS or count % MAX_ACCUMULATORS:
        return None
    if not free_of(store.indices[0], node.loop_var) or coefficient(store.indices[0], vector.loop_var) != 1:
        return None
    if not is_known_expr(value) or reads(value, name_of(store.buffer)) or free_of(value, node.loop_var):
        return None
    operation, lane = type(store.value), vector.loop_var
    lanes = tir.decl_buffer((MAX_ACCUMULATORS * width,), TYPE, "lanes", scope="global")
    turn = tir.Var("turn", dtype_of(node.loop_var))

    def each(first: int, make: Callable[[Any], Any]) -> Any:
        other = tir.Var("lane", dtype_of(lane))
        return loop(other, width, VECTORIZED, tir.BufferStore(lanes, make(other), [first * width + other]))

    def added(place: int) -> Any:
        def make(other: Any) -> Any:
            step = substitute(substitute(value, node.loop_var, turn * MAX_ACCUMULATORS + place), lane, other)
            return operation(tir.BufferLoad(lanes, [place * width + other]), step)

        return each(place, make)

    def whole(other: Any) -> Any:
        total = tir.BufferLoad(store.buffer, [substitute(store.indices[0], lane, other)])
        for place in range(MAX_ACCUMULATORS):
            total = operation(total, tir.BufferLoad(lanes, [place * width + other]))
        return total

    last = tir.Var("lane", dtype_of(lane))
    index = [substitute(store.indices[0], lane, last)]
    statements = [
        *(
            each(place, lambda _: tir.FloatImm(TYPE, IDENTITIES[operation]))
            for place in range(MAX_ACCUMULATORS)
        ),
        loop(
            turn, count // MAX_ACCUMULATORS, SERIAL, tir.SeqStmt([added(p) for p in range(MAX_ACCUMULATORS)])
        ),
        loop(last, width, VECTORIZED, tir.BufferStore(store.buffer, whole(last), index)),
    ]
    return _allocate(lanes, MAX_ACCUMULATORS * width, statements)


def _allocate(lanes: Any, width: int, statements: list[Any]) -> Any:
    if MODERN:
        return tir.SeqStmt([tir.AllocBuffer(lanes), *statements])
    return tir.Allocate(lanes.data, TYPE, [width], tir.const(1, "bool"), tir.SeqStmt(statements))


def _fold(operation: Any, value: Any, lanes: int) -> Any:
    """Return the reduction of a vector's lanes, by adding one half to the other repeatedly."""
    if lanes == 1:
        return value
    whole, half = tir.Var("whole", dtype_of(value)), lanes // 2

    def pick(first: int) -> Any:
        return tir.Shuffle([whole], [tir.IntImm("int32", first + lane) for lane in range(half)])

    return tir.Let(whole, value, _fold(operation, operation(pick(0), pick(half)), half))
