"""Loop-invariant code motion: move what each iteration computes alike in front of the loop.

A schedule that computes a softmax's sum inside the loop of its quotients needs this.
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
    """Return a loop with its invariant first statements in front of it; None if there are none.

    The moved statements must store only to memory that the loop allocates.
    """
    statements, allocations = _split_body(node.body)
    *first, last = statements
    if not first or not allocations or not isinstance(last, tir.BufferStore) or not const_extent(node):
        return None
    own = [allocated(each) for each in allocations]
    if name_of(last.buffer) in own or not all(free_of(each, node.loop_var) for each in first):
        return None
    if not all(_writes_only(each, own, name_of(last.buffer)) for each in first):
        return None
    made = [*first, loop(node.loop_var, node.extent, node.kind, last, like=node)]
    if MODERN:
        return tir.SeqStmt([*allocations, *made])
    body = tir.SeqStmt(made)
    for each in reversed(allocations):
        body = with_children(each, partial(_replace_body, body))
    return body


def _replace_body(new: Any, old: Any) -> Any:
    return new


def _split_body(body: Any) -> tuple[list[Any], list[Any]]:
    """Return the statements of a loop's body in order, and the body's allocations."""
    allocations = []
    while is_a(body, "Allocate"):
        allocations.append(body)
        body = body.body
    statements = list(body.seq) if isinstance(body, tir.SeqStmt) else [body]
    while statements and is_a(statements[0], "AllocBuffer"):
        allocations.append(statements.pop(0))
    return statements or [body], allocations


def _writes_only(node: Any, own: Sequence[str], stored: str) -> bool:
    """Return whether a statement stores only to `own` memory and does not read `stored`."""
    if isinstance(node, tir.BufferStore):
        return name_of(node.buffer) in own and not reads(node.value, stored)
    return bool(children(node)) and all(_writes_only(part, own, stored) for part in children(node))
