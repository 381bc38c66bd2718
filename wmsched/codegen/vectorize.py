"""Vectorise contiguous float32 loops that TVM and LLVM leave scalar or half-width, for CPUs.

LLVM may not reorder a sum. A reduction along contiguous memory is then a chain of additions of four cycles
each. Examples are a layer norm's mean, a softmax's maximum, and the final sum over the lanes of an
``rfactor``. This pass keeps vector accumulators and folds the last one by halves. The order of the sum
changes, as with ``rfactor``.

LLVM vectorises a plain elementwise loop at half of AVX-512's width; this pass uses the full width. A division
by a lane-invariant value becomes a multiplication by its reciprocal, one division instead of sixteen. That is
at most 1 unit in the last place off for normal reciprocals: not for divisors below 2^-128 (infinite
reciprocal) and above 2^126.

The pass needs flat buffers and loops that are not yet vectorised or unrolled. It works for either TVM and
leaves anything it does not know.
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
    """Return the function with such loops vectorised; unchanged if it has none or runs on a GPU."""
    if on_threads_of_gpu(function.body):
        return function
    body = _Nest(function.body).made
    return function if body.same_as(function.body) else function.with_body(body)


class _Nest:
    """Rewrites a function's body.

    Attributes
    ----------
    made
        The rewritten body.
    """

    def __init__(self, body: Any) -> None:
        self.sums: list[Any] = []  # buffers that hold reductions
        self._find_sums(body)
        self.made = self._rewrite(body)

    def _find_sums(self, node: Any) -> None:
        if isinstance(node, tir.BufferStore) and reduction(node) is not None:
            self.sums.append(node.buffer)
        for part in children(node):
            self._find_sums(part)

    def _rewrite(self, node: Any) -> Any:
        if isinstance(node, tir.For):
            if node.kind == VECTORIZED:
                return divided(node)
            made = reduced(node) or spread(node) or self._widen(node)
            if made is not None:
                return made
            if (made := hoisted(node)) is not None:
                return with_children(made, self._rewrite)
        return with_children(node, self._rewrite)

    def _widen(self, node: Any) -> Any:
        """Return a plain elementwise loop as a loop over vectors; None for another loop.

        A loop that reads a product's tile stays: vectors moving along the tile would keep it out of
        registers.
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
    """Return a vector loop with lane-invariant divisions replaced by multiplications."""
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
