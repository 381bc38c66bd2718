"""What a loop computes anew in each step alike, before it.

So a schedule has a softmax's sum that it computes at the loop of its quotients.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from wmsched.codegen.nodes import (
    MODERN,
    allocated,
    children,
    const_extent,
    free_of,
    is_a,
    loop,
    name_of,
    reads,
    tir,
    with_children,
)


def hoisted(node: Any) -> Any:
    """A loop whose steps compute the same first, in memory of their own, with that before it; or None."""
    statements, allocations = _within(node.body)
    *first, last = statements
    if not first or not allocations or not isinstance(last, tir.BufferStore) or not const_extent(node):
        return None
    own = [allocated(each) for each in allocations]
    if name_of(last.buffer) in own or not all(free_of(each, node.loop_var) for each in first):
        return None
    if not all(_touches(each, own, name_of(last.buffer)) for each in first):
        return None
    made = [*first, loop(node.loop_var, node.extent, node.kind, last, like=node)]
    if MODERN:
        return tir.SeqStmt([*allocations, *made])
    body = tir.SeqStmt(made)
    for each in reversed(allocations):
        body = with_children(each, partial(_other, body))
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
        return name_of(node.buffer) in own and not reads(node.value, stored)
    return bool(children(node)) and all(_touches(part, own, stored) for part in children(node))
