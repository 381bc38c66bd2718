"""Trace primitives that lay tensors and iterators out anew; called by `trace_nest.TraceNest`.

MetaSchedule makes a product of matrices of a convolution with them: copies laid out along the iterators
(ReIndex), several dimensions as one (TransformLayout), several iterators as one (TransformBlockLayout), and
zeros up to whole tiles (PadEinsum).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from wmsched.schedules.grammar import Instruction
from wmsched.schedules.index_maps import map_kinds, map_order, map_shape, map_variables
from wmsched.schedules.trace_blocks import Block, Buffer, Dims, NestState, Read, identity
from wmsched.schedules.types import Access, Iter, Stage


def reindex(nest: NestState, instruction: Instruction) -> str:
    """Apply ReIndex: add a copy of a tensor that is laid out along the block's iterators."""
    block, (place, writes) = nest.block(instruction.inputs[0]), instruction.attributes[:2]
    if writes:
        target = block.writes
        copy = Block(f"{target.name}_reindex", [block.iters[k] for k in block.spatial], role="copy")
        between = Buffer(copy.name, tuple(n for n, _ in copy.iters), block, "", target.nbytes)
        copy.reads, copy.writes = [Read(between, identity(range(len(copy.iters))))], target
        block.writes, target.writer = between, copy
        nest.insert(copy, after=block)
    else:
        read = block.reads[place]
        used = sorted({it for dim in read.dims for it, _ in dim})
        copy = Block(
            f"{read.buffer.name}_reindex", [(block.iters[k][0], "S") for k in used], role="cache_read"
        )
        number = {it: k for k, it in enumerate(used)}
        copy.reads = [Read(read.buffer, tuple(tuple((number[it], c) for it, c in dim) for dim in read.dims))]
        shape = tuple(n for n, _ in copy.iters)
        copy.writes = Buffer(copy.name, shape, copy, "", read.buffer.nbytes)
        block.reads[place] = Read(copy.writes, identity(used))
        nest.insert(copy, before=block)
    nest.give(instruction, [copy])
    return f"reindex {block.name} {'write' if writes else 'read'} {place}"


def transform_layout(nest: NestState, instruction: Instruction) -> str:
    """Apply TransformLayout to a tensor that a block reads or writes; sets new dimensions if known."""
    block, place, writes = (
        nest.block(instruction.inputs[0]),
        int(instruction.attributes[0]),
        int(instruction.attributes[1]),
    )
    buffer = block.writes if writes else block.reads[place - block.decomposed].buffer
    shape = map_shape(instruction.inputs[1], buffer.shape)
    text = f"transform_layout {block.name} {'write' if writes else 'read'} {place} " + " ".join(
        map(str, shape)
    )
    turned, behind = map_order(instruction.inputs[1]), map_variables(instruction.inputs[1])
    buffer.shape = shape
    for reader in nest.blocks:
        for read in reader.reads_of(buffer):
            if len(turned) == len(shape) == len(read.dims):
                read.dims, read.joined = tuple(read.dims[k] for k in turned), ()
                continue
            plain = not read.joined and all(_only(dim) >= 0 for dim in read.dims)
            read.joined = tuple(_behind(dims, read.dims) for dims in behind) if plain else ()
            read.dims = tuple(() for _ in shape)
            if reader.role in ("copy", "cache_read"):
                reader.vague = True
    return text


def _only(dim: Sequence[tuple[int, int]]) -> int:
    """Return the iterator that an index is; -1 if it is more than that."""
    return dim[0][0] if len(dim) == 1 and dim[0][1] == 1 else -1


def _behind(places: Sequence[int], dims: Dims) -> tuple[int, ...]:
    """Return the iterators of some dimensions."""
    return tuple(sorted({it for k in places if k < len(dims) for it, _ in dims[k]}))


def transform_block(nest: NestState, instruction: Instruction) -> str:
    """Apply TransformBlockLayout: new iterators, each of one or several old ones.

    Reads stay known where a tensor's dimensions have been joined like the iterators.
    """
    block = nest.block(instruction.inputs[0])
    text = instruction.attributes[0] if instruction.attributes else instruction.inputs[1]
    sizes = map_shape(text, [n for n, _ in block.iters])
    kinds = map_kinds(text, [kind for _, kind in block.iters])
    same = sizes == tuple(n for n, _ in block.iters)
    if not same:
        block.iters = [(n, kinds[k] if k < len(kinds) else "S") for k, n in enumerate(sizes)]
        _rejoin(block, [tuple(places) for places in map_variables(text)])
    block.fresh_loops()
    if block.vague:
        for k, each in enumerate(block.nest):
            each.parts = ((-1 - k, each.extent),)
    return f"transform_block {block.name} " + " ".join(map(str, sizes))


def _rejoin(block: Block, behind: Sequence[tuple[int, ...]]) -> None:
    """Set a block's reads by its new iterators, each with the old `behind` it; vague if they do not fit."""
    known = True
    for read in block.reads:
        dims: list[tuple[tuple[int, int], ...]] = []
        wanted = read.joined or tuple((_only(dim),) if dim else () for dim in read.dims)
        for each in wanted:
            known &= not each or each in behind
            dims.append(((behind.index(each), 1),) if each in behind else ())
        read.dims, read.joined = tuple(dims), ()
    source = block.source
    block.vague = not known or (source is not None and len(source.reads) != len(block.reads))
    if source is not None and not block.vague:
        reads = [
            (access.stage, read.dims, read.buffer.shape) for access, read in zip(source.reads, block.reads)
        ]
        block.origin = block.origin or source
        block.source = _remade(source, tuple(block.iters), tuple(reads))


@functools.lru_cache(maxsize=256)  # the candidates of a workload share one
def _remade(
    stage: Stage, iters: tuple[tuple[int, str], ...], reads: tuple[tuple[int, Dims, tuple[int, ...]], ...]
) -> Stage:
    """Return an operation over other iterators."""
    return Stage(
        stage.name,
        stage.kind,
        tuple(Iter(f"i{k}", n, kind) for k, (n, kind) in enumerate(iters)),
        tuple(Access(*read) for read in reads),
        stage.ops,
        stage.shape,
        stage.dtype_bytes,
    )


def pad_einsum(nest: NestState, instruction: Instruction) -> str:
    """Apply PadEinsum: whole multiples of iterators, and copies of the tensors that grow with them."""
    block, padding = nest.block(instruction.inputs[0]), instruction.attributes[0]
    sizes = [-(-n // max(1, by)) * max(1, by) for (n, _), by in zip(block.iters, padding, strict=True)]
    grown = {k for k, (n, _) in enumerate(block.iters) if sizes[k] != n}
    block.iters = [(n, kind) for n, (_, kind) in zip(sizes, block.iters)]
    for read in block.reads:
        if any(it in grown for dim in read.dims for it, _ in dim):
            shape = tuple(
                sizes[_only(dim)] if _only(dim) >= 0 else n for dim, n in zip(read.dims, read.buffer.shape)
            )
            copy = _padded(read.buffer, shape, "cache_read")
            copy.reads = [Read(read.buffer, identity(range(len(shape))))]
            nest.insert(copy, before=block)
            read.buffer = copy.writes
    spatial = block.spatial
    if grown & set(spatial):
        target = block.writes
        copy = _padded(target, tuple(sizes[k] for k in spatial), "copy")
        copy.iters = [(n, "S") for n in target.shape]
        copy.fresh_loops()
        copy.reads = [Read(copy.writes, identity(range(len(spatial))))]
        copy.writes.writer, target.writer, block.writes, copy.writes = block, copy, copy.writes, target
        nest.insert(copy, after=block)
    block.fresh_loops()
    return f"pad_einsum {block.name} " + " ".join(map(str, sizes))


def _padded(buffer: Buffer, shape: tuple[int, ...], role: str) -> Block:
    """Return a block that writes a larger copy of a tensor."""
    copy = Block(f"{buffer.name}_pad", [(n, "S") for n in shape], role=role)
    copy.writes = Buffer(copy.name, shape, copy, "", buffer.nbytes)
    return copy
