"""Loop nests of a MetaSchedule candidate, simulated instruction by instruction without TVM.

`TraceNest` is `loop_nest.LoopNest` for traces: it resolves the references of an instruction and returns the
action's text. `as_stages` converts the result to AutoScheduler's stages, for phi. Regions are inferred where
accesses are linear. Elsewhere, and after a layout transformation, extents are 0 (unknown). Unknown or
inconsistent instructions get a generic text and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from wmsched.schedules import trace_layouts as layouts
from wmsched.schedules import trace_primitives as primitives
from wmsched.schedules.grammar import Instruction
from wmsched.schedules.loop_nest import ANNOTATIONS, PARALLEL, UNROLL, VECTORIZE, StageState
from wmsched.schedules.trace_blocks import (
    MAX_WORD,
    Block,
    NestState,
    SharedLoop,
    axis,
    of,
    short,
    unknown,
)
from wmsched.schedules.trace_primitives import INLINE, ROOT

_ANNOTATION_NUMBERS = {name: number for number, name in enumerate(ANNOTATIONS)}

TENSORIZE = ANNOTATIONS.index("tensorize")
REINDEX = "_reindex"  # in the names of copies that ReIndex has made, and of their copies

#: Errors from an instruction that does not fit the nest; StopIteration if no block is under a loop.
FOLLOW_ERRORS = (
    LookupError,
    StopIteration,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


class TraceNest(NestState):
    """All blocks of one candidate; :meth:`apply` takes the steps in order and returns their texts.

    With `worded` false most texts are left out, which is faster where only states are predicted.

    Examples
    --------
    >>> nest = TraceNest(workload.stages)
    >>> texts = [nest.apply(step) for step in traces.steps_of(trace)]
    """

    def apply(self, step: Sequence[Any]) -> str:
        """Apply one checked step; return the action as text, with its references resolved. Never raises."""
        code, instructions = step
        text = ""
        for row in instructions:
            instruction = Instruction(*row)
            kind = instruction.kind
            self.counts[kind] = self.counts.get(kind, 0) + 1
            try:
                handler = _HANDLERS.get(kind)
                text = handler(self, instruction) if handler else self._describe(instruction)
            except FOLLOW_ERRORS:
                # Another TVM's instruction of the same name, or a reference to a missing block or loop.
                text = self._describe(instruction)
        return text or str(code)[:MAX_WORD]

    def _describe(self, instruction: Instruction) -> str:
        for name in instruction.outputs:
            self.values.setdefault(name, unknown(name))
        inputs = [short(self.value(x)) for x in instruction.inputs[:8]]
        attributes = [short(x) for x in instruction.attributes[:6]]
        return " ".join([str(instruction.kind)[:MAX_WORD], *inputs, *attributes])

    # -- lookups, which define random variables

    def get_block(self, instruction: Instruction) -> str:
        name = str(instruction.attributes[0])
        found = self.root if name == "root" else next((b for b in self.blocks if b.name == name), None)
        if (
            found is None and REINDEX in name
        ):  # TVM names copies by tensors, and these may not be their blocks'
            like = [b for b in self.blocks if b.name.endswith(name[name.index(REINDEX) :])]
            found = like[0] if len(like) == 1 else None
        if found is None:
            found = Block(name)
            if not self.known:
                self.blocks.append(found)
        self.give(instruction, [found])
        return f"get {name[:MAX_WORD]}" if self.worded else ""

    def get_loops(self, instruction: Instruction) -> str:
        block = self.block(instruction.inputs[0])
        wanted, nest = len(instruction.outputs), block.nest
        if len(nest) != wanted and block is not self.root:
            # An earlier instruction was not understood: keep the outer loops, forget the inner ones.
            block.nest = nest = [
                *nest[:wanted],
                *(SharedLoop(0, "S", ((-1, 0),), block) for _ in range(wanted - len(nest))),
            ]
            block.vague = self.known
        self.give(instruction, nest)
        return f"loops {block.name}" if self.worded else ""

    def get_children(self, instruction: Instruction) -> str:
        self.give(instruction, [b for b in self.blocks if not b.inlined])
        return "children"

    def get_producers(self, instruction: Instruction) -> str:
        block = self.block(instruction.inputs[0])
        found: list[Block] = []
        for read in block.reads:
            if read.buffer.writer is not None and read.buffer.writer not in found:
                found.append(read.buffer.writer)
        self.give(instruction, found)
        return f"producers {block.name}"

    def get_consumers(self, instruction: Instruction) -> str:
        block = self.block(instruction.inputs[0])
        self.give(instruction, self.consumers(block))
        return f"consumers {block.name}"

    def sample(self, instruction: Instruction) -> str:
        decision = instruction.decided()
        if instruction.kind == "SampleCategorical":
            candidates = instruction.attributes[0]
            self.give(instruction, [candidates[decision] if type(decision) is int else 0])
            return f"choose {self.values[instruction.outputs[0]]}" if self.worded else ""
        self.give(instruction, list(decision or ()))
        return "tile " + " ".join(short(x) for x in decision or ()) if self.worded else ""

    def sample_location(self, instruction: Instruction) -> str:
        block = self.block(instruction.inputs[0])
        decision = instruction.decided(-1)
        found: Any = {-1: ROOT, -2: INLINE}.get(decision)
        if found is None:
            found = self.consumers(block)[0].nest[decision]
        self.give(instruction, [found])
        return f"locate {block.name} {decision}"

    # -- loops

    def split(self, instruction: Instruction) -> str:
        loop = self.loop(instruction.inputs[0])
        given = [self.value(x) for x in instruction.inputs[1:]]
        sizes = [x if type(x) is int else 0 for x in given]
        if None in given:
            rest = prod(x for x in sizes if x)
            sizes[given.index(None)] = -(-loop.extent // rest) if loop.extent and rest else 0
        total = loop.extent or prod(sizes)
        text = ""
        if self.worded:
            text = f"split {of(loop)} {axis(loop)} {total} by " + " ".join(map(str, sizes))
        origin = loop.parts[0][0] if len(loop.parts) == 1 else -1
        parts = [SharedLoop(n, loop.kind, ((origin, n),), loop.owner) for n in sizes]
        self._replace([loop], parts)
        self.give(instruction, parts)
        self.splits.extend(sizes[1:])
        return text

    def _replace(self, old: Sequence[SharedLoop], new: Sequence[SharedLoop]) -> None:
        """Replace the loops `old` by `new` in every nest."""
        for block in self.blocks:
            for nest in (block.nest, block.tail):
                held = [loop for loop in nest if loop in old]
                if held:
                    at = nest.index(held[0])
                    nest[:] = [loop for loop in nest if loop not in held]
                    nest[at:at] = new
            if block.at is not None and block.at[1] in old and new:
                block.at = (block.at[0], new[-1])

    def fuse(self, instruction: Instruction) -> str:
        loops = [self.loop(x) for x in instruction.inputs]
        kinds = {loop.kind for loop in loops}
        owners = {id(loop.owner): loop.owner for loop in loops}
        fused = SharedLoop(
            prod(loop.extent for loop in loops),
            kinds.pop() if len(kinds) == 1 else "M",
            sum((loop.parts for loop in loops), ()),
            owners.popitem()[1] if len(owners) == 1 else None,
        )
        text = f"fuse {of(fused)} {len(loops)} loops to {fused.extent}" if self.worded else ""
        self._replace(loops, [fused])
        self.give(instruction, [fused])
        return text

    def reorder(self, instruction: Instruction) -> str:
        order = [self.loop(x) for x in instruction.inputs]
        for block in self.blocks:
            for nest in (block.nest, block.tail):
                places = [k for k, loop in enumerate(nest) if loop in order]
                for place, loop in zip(places, [loop for loop in order if loop in nest], strict=True):
                    nest[place] = loop
        return f"reorder {of(order[0])} " + " ".join(map(axis, order)) if self.worded else ""

    def annotate_loop(self, instruction: Instruction) -> str:
        loop = self.loop(instruction.inputs[0])
        if instruction.kind == "Bind":
            tag = str(instruction.attributes[0])
            loop.ann = (
                _ANNOTATION_NUMBERS["vthread"]
                if tag.startswith("vthread")
                else _ANNOTATION_NUMBERS.get(tag, 0)
            )
            return f"{tag[:MAX_WORD]} {of(loop)} {axis(loop)} {loop.extent}"
        loop.ann = {"Parallel": PARALLEL, "Vectorize": VECTORIZE}.get(instruction.kind, UNROLL)
        return f"{instruction.kind.lower()} {of(loop)} {axis(loop)} {loop.extent}" if self.worded else ""

    # -- annotations

    def annotate(self, instruction: Instruction) -> str:
        """Apply Annotate to a block or a loop; record unrolling, cooperative fetch and layout rewrite."""
        inputs, key = instruction.inputs, str(instruction.attributes[0])
        on, value = self.value(inputs[0]), self.value(inputs[1])
        if key == "pragma_auto_unroll_max_step" and isinstance(on, SharedLoop) and type(value) is int:
            for block in self.under(on):
                block.unroll = max(block.unroll, value)
        elif isinstance(on, Block):
            self.marks[key] = max(value, self.marks.get(key, 0)) if type(value) is int else value
            if key == "meta_schedule.cooperative_fetch" and type(value) is int:
                on.fetch = value
            elif key == "meta_schedule.layout_rewrite_preproc":
                on.role = "before"  # runs once on the weights, outside of what is measured
        else:
            self.marks[key] = value
        if not self.worded:
            return ""
        # Annotations and reorders leave out extents: other texts have them, and a search embeds each distinct
        # text.
        name = of(on) if isinstance(on, SharedLoop) else short(on)
        return f"annotate {name} {key[:MAX_WORD]} {short(value)}"

    def unannotate(self, instruction: Instruction) -> str:
        """Return the text of Unannotate, which changes nothing here."""
        if not self.worded:
            return ""
        on, key = short(self.value(instruction.inputs[0])), str(instruction.attributes[0])
        return f"unannotate {on} {key[:MAX_WORD]}"

    def tensorize(self, instruction: Instruction) -> str:
        """Apply Tensorize to a block or a loop."""
        on, name = self.value(instruction.inputs[0]), str(instruction.attributes[0])
        blocks = [on] if isinstance(on, Block) else self.under(on)
        for block in blocks:
            for loop in block.tail or (block.nest[block.nest.index(on) :] if on in block.nest else ()):
                loop.ann = TENSORIZE
            block.intrinsic = name
        return f"tensorize {short(on)} {name[:MAX_WORD]}"


_HANDLERS: dict[str, Callable[[TraceNest, Instruction], str]] = {
    **dict.fromkeys(("GetSBlock", "GetBlock"), TraceNest.get_block),
    "GetLoops": TraceNest.get_loops,
    "GetChildBlocks": TraceNest.get_children,
    "GetProducers": TraceNest.get_producers,
    "GetConsumers": TraceNest.get_consumers,
    **dict.fromkeys(("SampleCategorical", "SamplePerfectTile", "SamplePartitionedTile"), TraceNest.sample),
    "SampleComputeLocation": TraceNest.sample_location,
    "Split": TraceNest.split,
    "Fuse": TraceNest.fuse,
    "Reorder": TraceNest.reorder,
    **dict.fromkeys(("Parallel", "Vectorize", "Unroll", "Bind"), TraceNest.annotate_loop),
    "Annotate": TraceNest.annotate,
    "Unannotate": TraceNest.unannotate,
    "Tensorize": TraceNest.tensorize,
    **dict.fromkeys(("ComputeAt", "ReverseComputeAt"), primitives.compute_at),
    **dict.fromkeys(("ComputeInline", "ReverseComputeInline"), primitives.inline),
    "CacheRead": primitives.cache_read,
    "CacheWrite": primitives.cache_write,
    "ReIndex": layouts.reindex,
    "PadEinsum": layouts.pad_einsum,
    "RFactor": primitives.rfactor,
    "DecomposeReduction": primitives.decompose,
    "Blockize": primitives.blockize,
    "TransformLayout": layouts.transform_layout,
    "TransformBlockLayout": layouts.transform_block,
    "SetScope": primitives.set_scope,
}


# Conversion to AutoScheduler's stages, so that phi's columns mean the same for both.


def as_stages(nest: TraceNest) -> list[StageState]:
    """Return the blocks as AutoScheduler's stages; an attached one has its own loops and ``at``.

    A block with another computed after it (a cache write's copy, an epilogue) becomes a stage computed at
    that other one, which has the outer loops. AutoScheduler has it so.
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
