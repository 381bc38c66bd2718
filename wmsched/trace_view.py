"""A candidate's blocks shown as AutoScheduler's stages, so that phi's columns mean the same for both."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from wmsched.loops import StageState
from wmsched.trace_blocks import Block
from wmsched.trace_loops import TraceNest


def as_stages(nest: TraceNest) -> list[StageState]:
    """The blocks as AutoScheduler's stages: an attached one has its own loops and ``at``.

    A block that another is computed after (a cache write's copy, an epilogue) is shown as AutoScheduler
    has it: computed at that other one, which has the outer loops.
    """
    shown: dict[int, StageState] = {}
    live = [b for b in nest.blocks if b.role not in ("init", "inner", "before")]
    for block in live:
        role = block.role if block.source is None or block.role == "rfactor" else "compute"
        reads = block.source.reads if block.source is not None and not block.vague else ()
        state = StageState(block.name, block.source, [*block.nest, *block.tail], reads, role)
        state.inlined, state.unroll = block.inlined, block.unroll
        shown[id(block)] = state
    for block in live:
        if block.inlined or block.at is None or block.at[1] not in block.nest:
            continue
        where, state = block.at[1], shown[id(block)]
        partner = _partner(block, live)
        if partner is None:
            continue
        place = block.nest.index(where)
        if block.at[0] == "into":
            state.at = (shown[id(partner)], place)
            state.loops = [*block.nest[place + 1 :], *block.tail]
            state.around = prod((float(max(1, x.extent)) for x in block.nest[: place + 1]), start=1.0)
        elif shown[id(partner)].at is None:
            shown[id(partner)].at = (state, place)
    arguments = [StageState(name, None, [], (), "placeholder") for name in nest.arguments]
    return [*arguments, *shown.values()]


def _partner(block: Block, live: Sequence[Block]) -> Block | None:
    assert block.at is not None
    others = [b for b in live if b is not block and not b.inlined and block.at[1] in b.nest]
    if block.at[0] == "into":
        linked = [b for b in others if b.own_from() <= b.nest.index(block.at[1])]
    else:
        linked = [b for b in others if any(r.buffer is b.writes for r in block.reads)]
    return next(iter(linked or others), None)
