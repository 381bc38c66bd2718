"""How the texts of a trace's actions name loops, blocks and values."""

from __future__ import annotations

from typing import Any

from wmsched.trace_blocks import Block, SharedLoop

WORD = 40  # characters kept of a text that somebody else wrote


def of(loop: SharedLoop) -> str:
    return loop.owner.name if loop.owner is not None else "loop"


def axis(loop: SharedLoop) -> str:
    if len(loop.parts) != 1 or loop.parts[0][0] < 0:
        return "fused"
    return f"{'r' if loop.kind == 'R' else 'x'}{loop.parts[0][0]}"


def short(x: Any) -> str:
    if isinstance(x, Block):
        return x.name[:WORD]
    if isinstance(x, SharedLoop):
        return f"{of(x)} {axis(x)} {x.extent}"
    if isinstance(x, (list, tuple)):
        return " ".join(short(part) for part in x[:8])
    return str(x)[:WORD]
