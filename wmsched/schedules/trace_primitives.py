"""Trace primitives that move, merge and make blocks; called by `trace_nest.TraceNest`.

Each takes the nest and an instruction, changes the nest, and returns the action's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from wmsched.schedules.grammar import Instruction
from wmsched.schedules.trace_blocks import (
    MAX_READS,
    MAX_WORD,
    Block,
    Buffer,
    NestState,
    Read,
    SharedLoop,
    identity,
    span,
    through,
)

ROOT, INLINE = "root", "inline"  # results of SampleComputeLocation that are no loop


def compute_at(nest: NestState, instruction: Instruction) -> str:
    """Apply ComputeAt or ReverseComputeAt: the target's outer loops, and a tile of the block's own."""
    block, where = nest.block(instruction.inputs[0]), nest.value(instruction.inputs[1])
    if where == ROOT:
        return f"compute_root {block.name}"
    if where == INLINE:
        return _inline(nest, block)
    if not isinstance(where, SharedLoop):
        raise LookupError(instruction.inputs[1])
    back = instruction.kind == "ReverseComputeAt"
    others = [b for b in nest.under(where) if b is not block and not b.inlined]
    if back:
        linked = [b for b in others if any(r.buffer is b.writes for r in block.reads)]
    else:
        linked = [b for b in others if any(r.buffer is block.writes for r in b.reads)]
    partner = (linked or others)[0]
    place = partner.nest.index(where) + 1 if where in partner.nest else len(partner.nest)
    sizes = _consumer_sizes(block, others, where) if back else _producer_sizes(block, others, where)
    own = [SharedLoop(n, kind, ((k, n),), block) for k, (n, (_, kind)) in enumerate(zip(sizes, block.iters))]
    block.nest, block.tail = [*partner.nest[:place], *own], []
    block.at = ("after" if back else "into", where)
    if back:
        nest.insert(block, after=others[-1])
    else:
        nest.insert(block, before=partner)
    return f"compute_at {block.name} {partner.name} {place} of {len(partner.nest)} {where.extent}"


def _producer_sizes(block: Block, others: Sequence[Block], where: SharedLoop) -> list[int]:
    """Return the extents of a producer's iterators that one iteration of the loop needs."""
    sizes = [n for n, _ in block.iters]
    needed: list[int] = []
    for reader in others:
        for read in reader.reads_of(block.writes):
            found = span(read.dims, reader.tile(where, scope=block.writes.scope), block.writes.shape)
            if reader.vague:
                found = [0] * len(found)
            needed = [max(a, b) for a, b in zip(needed, found)] if needed else found
    for k, n in zip(block.spatial, needed):
        sizes[k] = n
    return sizes


def _consumer_sizes(block: Block, others: Sequence[Block], where: SharedLoop) -> list[int]:
    """Return the extents of a consumer's iterators that one iteration of the loop makes ready."""
    sizes = [n for n, _ in block.iters]
    for read in block.reads:
        writer = read.buffer.writer
        if writer is None or writer not in others:
            continue
        tile = writer.tile(where, scope=read.buffer.scope)
        ready = [tile[k] for k in writer.spatial]
        for k, dim in enumerate(read.dims):
            if len(dim) == 1 and abs(dim[0][1]) == 1 and k < len(ready):
                it = dim[0][0]
                sizes[it] = 0 if writer.vague else min(ready[k], sizes[it] or ready[k])
    return sizes


def inline(nest: NestState, instruction: Instruction) -> str:
    """Apply ComputeInline into the consumers, or ReverseComputeInline into the producer."""
    block = nest.block(instruction.inputs[0])
    if instruction.kind == "ComputeInline":
        return _inline(nest, block)
    writer = next((r.buffer.writer for r in block.reads if r.buffer.writer is not None), None)
    if writer is not None:
        writer.reads += [r for r in block.reads if r.buffer is not writer.writes][:MAX_READS]
        writer.writes = block.writes
        block.writes.writer = writer
    block.inlined, block.nest = True, []
    return f"inline {block.name} back"


def _inline(nest: NestState, block: Block) -> str:
    for reader in nest.consumers(block):
        reads: list[Read] = []
        for read in reader.reads:
            if read.buffer is not block.writes:
                reads.append(read)
            else:
                reads += [Read(r.buffer, through(read.dims, r.dims, block.spatial)) for r in block.reads]
        reader.reads = reads[:MAX_READS]
    block.inlined, block.nest = True, []
    return f"inline {block.name}"


def cache_read(nest: NestState, instruction: Instruction) -> str:
    """Apply CacheRead: add a block that copies a tensor which another block reads."""
    reader, scope = nest.block(instruction.inputs[0]), str(instruction.attributes[1])
    place = (
        int(instruction.attributes[0]) - reader.decomposed
    )  # a decomposed reduction reads its own output first
    source = reader.reads[place].buffer
    copy = _copy(f"{source.name}_{scope}", source, scope)
    named = [
        nest.block(x)
        for x in (instruction.inputs[1] if isinstance(instruction.inputs[1], (list, tuple)) else ())
    ]
    for block in named or nest.blocks:
        for read in block.reads_of(source):
            read.buffer = copy.writes
    copy.reads = [Read(source, identity(range(len(source.shape))))]
    nest.insert(copy, after=source.writer)
    nest.give(instruction, [copy])
    return f"cache_read {source.name} {scope[:MAX_WORD]} for {reader.name}"


def cache_write(nest: NestState, instruction: Instruction) -> str:
    """Apply CacheWrite: the block writes a new tensor, and a new block copies that to the old one."""
    block, scope = nest.block(instruction.inputs[0]), str(instruction.attributes[1])
    target = block.writes
    copy = _copy(f"{target.name}_{scope}", target, scope)
    copy.role = "copy"
    cache, copy.writes = copy.writes, target
    cache.writer, target.writer, block.writes = block, copy, cache
    copy.reads = [Read(cache, identity(range(len(target.shape))))]
    nest.insert(copy, after=block)
    nest.give(instruction, [copy])
    return f"cache_write {block.name} {scope[:MAX_WORD]}"


def _copy(name: str, source: Buffer, scope: str) -> Block:
    copy = Block(name, [(n, "S") for n in source.shape], role="cache_read")
    copy.writes = Buffer(name, source.shape, copy, scope, source.nbytes)
    return copy


def rfactor(nest: NestState, instruction: Instruction) -> str:
    """Apply RFactor: add a block of partial results, spatial along the loop; the old block reduces them."""
    loop = nest.loop(instruction.inputs[0])
    block = next(b for b in nest.under(loop) if loop.owner in (b, None))
    text = f"rfactor {block.name} {'r' if loop.kind == 'R' else 'x'}{loop.parts[0][0]} {loop.extent}"
    axis = min(int(instruction.attributes[0]) if instruction.attributes else 0, len(block.spatial))
    spatial = [block.iters[k] for k in block.spatial]
    inner = [x for x in block.nest if x.kind == "R" and x is not loop]
    # The factored loop's iterator comes first, in any output dimension.
    iters = [(loop.extent, "S"), *spatial, *((x.extent, "R") for x in inner)]
    factored = Block(f"{block.name}_rf", iters, source=block.source, role="rfactor")
    factored.order = list(range(1, len(spatial) + 1))
    factored.order.insert(axis, 0)
    factored.vague = block.vague
    shape = tuple(iters[k][0] for k in factored.order)
    factored.writes = Buffer(factored.name, shape, factored, "", block.writes.nbytes)
    place = {k: n + 1 for n, k in enumerate(block.spatial)}
    # Each old iterator is a sum over the new ones: outer loops of a split reduction have larger strides.
    sums: dict[int, list[tuple[int, int]]] = {k: [(n, 1)] for k, n in place.items()}
    factored.nest, tail = [], len(spatial) + 1
    for at, old in enumerate(block.nest):
        origin = old.parts[0][0]
        if old is loop:
            k, kind = 0, "S"
        elif old.kind == "R":
            k, kind, tail = tail, "R", tail + 1
        else:
            k, kind = place.get(origin, -1), old.kind
        if old.kind == "R":
            stride = prod(x.extent for x in block.nest[at + 1 :] if x.kind == "R" and x.parts[0][0] == origin)
            sums.setdefault(origin, []).append((k, stride))
        factored.nest.append(SharedLoop(old.extent, kind, ((k, old.extent),), factored))
    for read in block.reads:
        dims = tuple(
            tuple((n, c * each) for it, c in dim for n, each in sums.get(it, ())) for dim in read.dims
        )
        factored.reads.append(Read(read.buffer, dims))
    number = {k: n + 1 for n, k in enumerate(block.spatial)}
    keep = [x for x in block.nest if x.kind == "S" or x is loop]
    block.iters = [(loop.extent, "R"), *spatial]
    block.nest = [
        SharedLoop(x.extent, x.kind, ((0 if x is loop else number.get(x.parts[0][0], -1), x.extent),), block)
        for x in keep
    ]
    order = list(range(1, len(spatial) + 1))
    order.insert(axis, 0)
    block.reads, block.order = [Read(factored.writes, identity(order))], None
    nest.insert(factored, before=block)
    nest.give(instruction, [factored])
    return text


def decompose(nest: NestState, instruction: Instruction) -> str:
    """Apply DecomposeReduction: move the initial values to a new block in front of the loop."""
    block, loop = nest.block(instruction.inputs[0]), nest.loop(instruction.inputs[1])
    place = block.nest.index(loop) if loop in block.nest else len(block.nest)
    new = Block(f"{block.name}_init", role="init")
    own = [SharedLoop(x.extent, x.kind, x.parts, new, x.ann) for x in block.nest[place:] if x.kind == "S"]
    new.nest, new.writes = [*block.nest[:place], *own], Buffer(block.writes.name)
    nest.insert(new, before=next((b for b in nest.blocks if loop in b.nest), block))
    nest.give(instruction, [new])
    text = f"decompose {block.name} {place} of {len(block.nest)} {loop.extent}"
    block.name, block.decomposed = f"{block.name}_update", True
    return text


def blockize(nest: NestState, instruction: Instruction) -> str:
    """Apply Blockize: add a block around the loop and its body, with the inner block's reads and writes."""
    loop = nest.value(instruction.inputs[0])
    inner = (
        next(b for b in nest.under(loop) if b.role != "inner")
        if isinstance(loop, SharedLoop)
        else nest.block(instruction.inputs[0])
    )
    place = inner.nest.index(loop) if loop in inner.nest else len(inner.nest)
    outer = Block(f"{inner.name}_o", inner.iters, source=inner.source, role=inner.role)
    outer.reads, outer.writes, outer.vague = inner.reads, inner.writes, inner.vague
    outer.origin = inner.origin
    outer.nest, outer.tail, outer.at, outer.unroll = (
        inner.nest[:place],
        inner.nest[place:],
        inner.at,
        inner.unroll,
    )
    for each in (*outer.nest, *outer.tail):
        if each.owner is inner:
            each.owner = outer
    if outer.writes.writer is inner:
        outer.writes.writer = outer
    nest.insert(outer, before=inner)
    nest.blocks.remove(inner)
    inner.role, inner.nest = "inner", list(outer.tail)
    nest.give(instruction, [outer])
    return f"blockize {outer.name} " + " ".join(str(x.extent) for x in outer.tail)


def set_scope(nest: NestState, instruction: Instruction) -> str:
    """Apply SetScope: set the memory scope of the block's output."""
    block, scope = nest.block(instruction.inputs[0]), str(instruction.attributes[1])
    block.writes.scope = scope
    return f"set_scope {block.name} {scope[:MAX_WORD]}"
