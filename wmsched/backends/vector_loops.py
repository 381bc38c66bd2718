"""Loops over contiguous float32 in vectors, for processors: what TVM and LLVM leave one element at a time.

LLVM may not reorder a sum, so a reduction along contiguous memory (a layer norm's mean, a softmax's maximum)
is one addition after the other, four cycles each, and where a schedule splits it into lanes (``rfactor``),
adding up these lanes is. Here it goes into vectors, the last of which is folded by halves. A plain loop of
elements, which LLVM vectorises in half of AVX-512's width, takes all of it, and in a vector loop a division
by what is the same for all lanes is a multiplication by its reciprocal (one in place of sixteen; at most 1
unit in the last place off). The sums' order is another than the loop's, as with ``rfactor``.

It works on loop nests whose buffers are flat and whose loops are neither vectorised nor unrolled yet, of
either TVM; what it does not know it leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wmsched.backends.loop_nests import (
    MODERN,
    SERIAL,
    VECTORIZED,
    coefficient,
    counted,
    dtype_of,
    free_of,
    has,
    is_a,
    is_load,
    loaded,
    loop,
    name_of,
    on_threads_of_gpu,
    operands,
    parts,
    put,
    same,
    same_storage,
    tir,
    with_operands,
    with_parts,
)

LANES = 16  # of float32 in AVX-512; narrower processors take such a vector in parts
LEAST = 16  # shorter reductions stay as they are: LLVM unrolls them, and takes a loop around in vectors
MOST_VECTORS = 4  # that a reduction adds to in turn: as many as an addition has cycles
STEPS = 4  # at least so many for each of them
TYPE = "float32"

_LEAST = -3.4028234663852886e38  # TVM's identity of max
OPERATIONS = {tir.Add: 0.0, tir.Max: _LEAST, tir.Min: -_LEAST}


def in_vectors(function: Any) -> Any:
    """The same function with such loops in vectors; itself where it has none, or runs on a GPU."""
    if on_threads_of_gpu(function.body):
        return function
    body = _Nest(function.body).made
    return function if body.same_as(function.body) else function.with_body(body)


class _Nest:
    """A function's body, and what it is made into.

    Attributes
    ----------
    made
        The body with its loops in vectors.
    """

    def __init__(self, body: Any) -> None:
        self.sums: list[Any] = []  # buffers that something is reduced into
        self._look(body)
        self.made = self._statement(body)

    def _look(self, node: Any) -> None:
        if isinstance(node, tir.BufferStore) and _reduction(node) is not None:
            self.sums.append(node.buffer)
        for part in parts(node):
            self._look(part)

    def _statement(self, node: Any) -> Any:
        if isinstance(node, tir.For):
            if node.kind == VECTORIZED:
                return _divided(node)
            made = _reduced(node) or self._widened(node)
            if made is not None:
                return made
            if (made := _hoisted(node)) is not None:
                return with_parts(made, self._statement)
        return with_parts(node, self._statement)

    def _widened(self, node: Any) -> Any:
        """A plain loop over contiguous elements as one over vectors of them; None for another loop.

        Not one that reads a product's tile: vectors that move along the tile would keep it from registers.
        """
        store, variable = _plain(node), node.loop_var
        if store is None or int(node.extent) % LANES or coefficient(store.indices[0], variable) != 1:
            return None
        if _reach(store.value, variable, store.buffer) is None or self._reads_sums(store.value, variable):
            return None
        turns = int(node.extent) // LANES
        turn, lane = tir.Var("turn", dtype_of(variable)), tir.Var("lane", dtype_of(variable))
        place = turn * LANES + lane if turns > 1 else lane
        value = _divisions(put(store.value, variable, place), lane)
        index = [put(store.indices[0], variable, place)]
        inner = loop(lane, LANES, VECTORIZED, tir.BufferStore(store.buffer, value, index))
        return loop(turn, turns, SERIAL, inner) if turns > 1 else inner

    def _reads_sums(self, value: Any, variable: Any) -> bool:
        if is_load(value):
            sums = any(same_storage(loaded(value), buffer) for buffer in self.sums)
            return sums and has(value.indices[0], variable)
        return any(self._reads_sums(operand, variable) for operand in operands(value) or [])


def _plain(node: Any) -> Any:
    """What a serial loop of known length stores, where that is one float32; None of others."""
    body = node.body
    if node.kind not in (SERIAL, tir.ForKind.UNROLLED) or counted(node) is None:
        return None
    if not isinstance(body, tir.BufferStore) or len(body.indices) != 1 or dtype_of(body.value) != TYPE:
        return None
    return body


# --- reductions ---------------------------------------------------------------------------------------------


def _reduction(store: Any) -> Any:
    """What a statement reduces into where it stores; None of one that does not."""
    value = store.value
    if type(value) not in OPERATIONS or len(store.indices) != 1:
        return None
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if not is_load(own) or not loaded(own).same_as(store.buffer):
            continue
        if same(own.indices[0], store.indices[0]):
            return other
    return None


def _reduced(node: Any) -> Any:
    """A reduction along contiguous memory in vectors; None for another loop."""
    store, variable = _plain(node), node.loop_var
    if store is None or int(node.extent) < LEAST or coefficient(store.indices[0], variable) != 0:
        return None
    value = _reduction(store)
    if value is None or _reach(value, variable, store.buffer) != 1:
        return None
    return _lanes(node, store, type(store.value), value)


def _lanes(node: Any, store: Any, operation: Any, value: Any) -> Any:
    """``store = operation(store, value)`` over the loop: in lanes, these by halves, and what is left."""
    extent, variable = int(node.extent), node.loop_var
    vectors = MOST_VECTORS
    if extent % LANES == 0 and extent <= vectors * LANES:
        vectors = extent // LANES  # one turn
    while vectors > 1 and extent != vectors * LANES and extent < vectors * LANES * STEPS:
        vectors //= 2
    width = vectors * LANES
    turns, rest = divmod(extent, width)
    lanes = tir.decl_buffer((width,), TYPE, "lanes", scope="global")

    def at(turn: Any, lane: Any) -> Any:
        return _divisions(put(value, variable, turn * width + lane), lane)

    def each(make: Callable[[Any], Any]) -> Any:
        lane = tir.Var("lane", dtype_of(variable))
        return loop(lane, width, VECTORIZED, tir.BufferStore(lanes, make(lane), [lane]))

    if turns == 1:
        statements = [each(lambda lane: at(0, lane))]
    else:
        turn = tir.Var("turn", dtype_of(variable))
        adding = each(lambda lane: operation(tir.BufferLoad(lanes, [lane]), at(turn, lane)))
        statements = [
            each(lambda lane: tir.FloatImm(TYPE, OPERATIONS[operation])),
            loop(turn, turns, SERIAL, adding),
        ]
    total = tir.BufferLoad(lanes, [tir.Ramp(0, 1, LANES)])
    for vector in range(1, vectors):
        total = operation(total, tir.BufferLoad(lanes, [tir.Ramp(vector * LANES, 1, LANES)]))
    index = list(store.indices)
    kept = tir.BufferLoad(store.buffer, index)
    folded = operation(kept, _folded(operation, total, LANES))
    statements.append(tir.BufferStore(store.buffer, folded, index))
    if rest:
        late = tir.Var("rest", dtype_of(variable))
        left = operation(kept, put(value, variable, late + (extent - rest)))
        tail = loop(late, rest, SERIAL, tir.BufferStore(store.buffer, left, index))
        statements.append(_reduced(tail) or tail)
    if hasattr(tir, "AllocBuffer"):
        return tir.SeqStmt([tir.AllocBuffer(lanes), *statements])
    return tir.Allocate(lanes.data, TYPE, [width], tir.const(1, "bool"), tir.SeqStmt(statements))


def _folded(operation: Any, value: Any, lanes: int) -> Any:
    """All lanes of a vector in one number, half of them to the other half each time."""
    if lanes == 1:
        return value
    whole, half = tir.Var("whole", dtype_of(value)), lanes // 2

    def pick(first: int) -> Any:
        return tir.Shuffle([whole], [tir.IntImm("int32", first + lane) for lane in range(half)])

    return tir.Let(whole, value, _folded(operation, operation(pick(0), pick(half)), half))


# --- what is the same in each step -------------------------------------------------------------------------


def _hoisted(node: Any) -> Any:
    """A loop whose steps each compute the same first, in memory of their own, with that before it; or None.

    So a schedule has a softmax's sum that it computes at the loop of its quotients.
    """
    statements, allocations = _within(node.body)
    *first, last = statements
    if not first or not allocations or not isinstance(last, tir.BufferStore) or not counted(node):
        return None
    own = [name_of(each.buffer) if MODERN else each.buffer_var.name for each in allocations]
    if name_of(last.buffer) in own or not all(free_of(each, node.loop_var) for each in first):
        return None
    if not all(_touches(each, own, name_of(last.buffer)) for each in first):
        return None
    made = [*first, loop(node.loop_var, node.extent, node.kind, last, like=node)]
    if MODERN:
        return tir.SeqStmt([*allocations, *made])
    body = tir.SeqStmt(made)
    for each in reversed(allocations):
        body = with_parts(each, partial(_other, body))
    return body


def _other(new: Any, old: Any) -> Any:
    return new


def _within(body: Any) -> tuple[list[Any], list[Any]]:
    """The statements of a loop's body in order, and what it allocates for them."""
    allocations = []
    while is_a(body, "Allocate"):
        allocations.append(body)
        body = body.body
    statements = list(body.seq) if isinstance(body, tir.SeqStmt) else [body]
    while statements and is_a(statements[0], "AllocBuffer"):
        allocations.append(statements.pop(0))
    return statements or [body], allocations


def _touches(node: Any, own: Sequence[str], stored: str) -> bool:
    """Whether a statement stores to `own` memory alone and reads none that the loop stores to."""
    if isinstance(node, tir.BufferStore):
        return name_of(node.buffer) in own and not _reads(node.value, stored)
    return bool(parts(node)) and all(_touches(part, own, stored) for part in parts(node))


def _reads(value: Any, name: str) -> bool:
    if is_load(value) and name_of(loaded(value)) == name:
        return True
    return any(_reads(operand, name) for operand in operands(value) or [])


# --- divisions ----------------------------------------------------------------------------------------------


def _divided(node: Any) -> Any:
    """A vector loop whose divisions by the same number for all lanes are multiplications."""
    store = node.body
    if not isinstance(store, tir.BufferStore) or dtype_of(store.value) != TYPE:
        return node
    if _reach(store.value, node.loop_var, None) is None:
        return node
    value = _divisions(store.value, node.loop_var)
    if value.same_as(store.value):
        return node
    body = tir.BufferStore(store.buffer, value, list(store.indices))
    return loop(node.loop_var, node.extent, node.kind, body, like=node)


def _divisions(value: Any, lane: Any) -> Any:
    """The value with a float32 that all lanes are divided by as its reciprocal; itself if there is none."""
    divides = isinstance(value, tir.Div) and dtype_of(value) == TYPE
    if divides and not has(value.b, lane) and has(value.a, lane):
        return tir.Mul(_divisions(value.a, lane), tir.Div(tir.FloatImm(TYPE, 1.0), value.b))
    return with_operands(value, lambda operand: _divisions(operand, lane))


def _reach(value: Any, variable: Any, stored: Any) -> int | None:
    """How a float32 value goes along with a loop: 1 where it reads contiguous numbers, 0 where none.

    None where that is not known: for other types and strides, conditions, and what reads the buffer that is
    stored to.
    """
    if dtype_of(value) != TYPE:
        return None
    if is_load(value):
        if stored is not None and same_storage(loaded(value), stored):
            return None
        if operands(value) is None or len(value.indices) != 1:
            return None
        step = coefficient(value.indices[0], variable)
        return step if step in (0, 1) else None
    inner = operands(value)
    if inner is None or isinstance(value, (tir.Cast, tir.Var)):
        return None
    steps = [_reach(operand, variable, stored) for operand in inner]
    return None if None in steps else max(steps, default=0)  # type: ignore[type-var]
