"""Loops over contiguous float32 in vectors, for processors: what TVM and LLVM leave one element at a time.

LLVM may not reorder a sum, so a reduction along contiguous memory (a layer norm's mean, a softmax's maximum)
is one addition after the other, four cycles each, and where a schedule splits it into lanes (``rfactor``),
adding up these lanes is. Here it goes into vectors, the last of which is folded by halves. A plain loop of
elements, which LLVM vectorises in half of AVX-512's width, takes all of it, and in a vector loop a division
by what is the same for all lanes is a multiplication by its reciprocal (one in place of sixteen; at most 1
unit in the last place off where that is a normal number: not of divisors below 2^-128, whose reciprocal is
infinite, and above 2^126). The sums' order is another than the loop's, as with ``rfactor``.

It works on loop nests whose buffers are flat and whose loops are neither vectorised nor unrolled yet, of
either TVM; what it does not know it leaves alone.
"""

from __future__ import annotations

from typing import Any

from wmsched.codegen.hoist import hoisted
from wmsched.codegen.nodes import (
    SERIAL,
    VECTORIZED,
    children,
    coefficient,
    dtype_of,
    is_load,
    loaded,
    loop,
    on_threads_of_gpu,
    operands,
    same_storage,
    substitute,
    tir,
    uses_var,
    with_children,
)
from wmsched.codegen.vectorize_reductions import reduced, reduction, spread
from wmsched.codegen.vectorize_values import LANES, TYPE, divisions, plain, reach


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
        if isinstance(node, tir.BufferStore) and reduction(node) is not None:
            self.sums.append(node.buffer)
        for part in children(node):
            self._look(part)

    def _statement(self, node: Any) -> Any:
        if isinstance(node, tir.For):
            if node.kind == VECTORIZED:
                return divided(node)
            made = reduced(node) or spread(node) or self._widened(node)
            if made is not None:
                return made
            if (made := hoisted(node)) is not None:
                return with_children(made, self._statement)
        return with_children(node, self._statement)

    def _widened(self, node: Any) -> Any:
        """A plain loop over contiguous elements as one over vectors of them; None for another loop.

        Not one that reads a product's tile: vectors that move along the tile would keep it from registers.
        """
        store, variable = plain(node), node.loop_var
        if store is None or coefficient(store.indices[0], variable) != 1:
            return None
        turns, rest = divmod(int(node.extent), LANES)
        if not turns or rest:
            return None
        if reach(store.value, variable, store.buffer) is None or self._reads_sums(store.value, variable):
            return None
        turn, lane = tir.Var("turn", dtype_of(variable)), tir.Var("lane", dtype_of(variable))
        place = turn * LANES + lane if turns > 1 else lane
        value = divisions(substitute(store.value, variable, place), lane)
        index = [substitute(store.indices[0], variable, place)]
        inner = loop(lane, LANES, VECTORIZED, tir.BufferStore(store.buffer, value, index))
        return loop(turn, turns, SERIAL, inner) if turns > 1 else inner

    def _reads_sums(self, value: Any, variable: Any) -> bool:
        if is_load(value):
            sums = any(same_storage(loaded(value), buffer) for buffer in self.sums)
            return sums and uses_var(value.indices[0], variable)
        return any(self._reads_sums(operand, variable) for operand in operands(value) or [])


def divided(node: Any) -> Any:
    """A vector loop whose divisions by the same number for all lanes are multiplications."""
    store = node.body
    if not isinstance(store, tir.BufferStore) or dtype_of(store.value) != TYPE:
        return node
    if reach(store.value, node.loop_var, None) is None:
        return node
    value = divisions(store.value, node.loop_var)
    if value.same_as(store.value):
        return node
    body = tir.BufferStore(store.buffer, value, list(store.indices))
    return loop(node.loop_var, node.extent, node.kind, body, like=node)
