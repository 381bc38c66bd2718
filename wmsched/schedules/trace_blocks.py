"""Blocks of MetaSchedule's TensorIR with their loops and reads, simulated without TVM.

Blocks share loops, unlike AutoScheduler's stages: a block computed at another's loop has the same
`SharedLoop` objects in its nest. A primitive that changes a loop therefore changes every nest that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wmsched.schedules.grammar import Instruction
from wmsched.schedules.loop_nest import ANNOTATIONS, Loop
from wmsched.schedules.types import Stage

#: Annotations of loops that run over the threads of one thread block.
THREADS = frozenset(
    ANNOTATIONS.index(name) for name in ("vthread", "threadIdx.x", "threadIdx.y", "threadIdx.z")
)

#: Bounds against made-up traces, which would grow without limit; no program exceeds them.
MAX_PARTS, MAX_READS, MAX_EXTENT = 64, 64, 1 << 62

Dims = tuple[tuple[tuple[int, int], ...], ...]


class SharedLoop(Loop):
    """A loop, and the block that its parts' iterators belong to; None if unknown."""

    __slots__ = ("owner",)

    def __init__(
        self,
        extent: int,
        kind: str,
        parts: tuple[tuple[int, int], ...],
        owner: Block | None = None,
        ann: int = 0,
    ) -> None:
        if len(parts) > MAX_PARTS or not 0 <= extent < MAX_EXTENT:  # of no program: treat as unknown
            extent, parts = 0, ((-1, 0),)
        super().__init__(extent, kind, parts, ann)
        self.owner = owner

    def copy(self, owner: Block | None) -> SharedLoop:
        """Return a copy of the loop that belongs to another block."""
        return SharedLoop(self.extent, self.kind, self.parts, owner, self.ann)


@dataclass(eq=False, slots=True)
class Buffer:
    """A tensor; ``writer`` is the block that fills it, None for an argument."""

    name: str
    shape: tuple[int, ...] = ()
    writer: Block | None = None
    scope: str = ""
    nbytes: int = 4


@dataclass(eq=False, slots=True)
class Read:
    """A block's read of one tensor; ``dims`` is as in `types.Access`, over the block's iterators.

    ``joined`` has the iterators behind each dimension where `dims` cannot say it: a layout transformation has
    joined several. () if unknown or not needed.
    """

    buffer: Buffer
    dims: Dims
    joined: tuple[tuple[int, ...], ...] = ()


class Block:
    """A block: iterators as (extent, "S" or "R"), reads, written buffer, and nest of loops."""

    __slots__ = (
        "at", "decomposed", "fetch", "inlined", "intrinsic", "iters", "name", "nest", "order",
        "origin", "reads", "role", "source", "tail", "unroll", "vague", "writes",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        iters: Sequence[tuple[int, str]] = (),
        *,
        source: Stage | None = None,
        role: str = "compute",
    ) -> None:
        self.name = name
        self.iters = list(iters)
        self.source = source
        self.origin: Stage | None = None  # the workload's stage, if `source` is over other iterators
        self.role = role  # compute, cache_read, cache_write, copy, rfactor, init, inner
        self.reads: list[Read] = []
        self.writes = Buffer(name)
        self.order: list[int] | None = None  # spatial iterators by output dimension, if not in order
        self.inlined = False
        self.decomposed = False
        self.vague = False  # whether its iterators are no longer those of `source`
        self.unroll = 0
        self.fetch = 0  # vector length of a cooperative copy into shared memory
        self.intrinsic = ""
        self.at: tuple[str, SharedLoop] | None = None  # "into" or "after" another block, below this loop
        self.tail: list[SharedLoop] = []  # loops inside a blockized block
        self.nest: list[SharedLoop] = []
        self.fresh_loops()

    def fresh_loops(self) -> None:
        """Reset the nest to one loop for each iterator."""
        self.nest = [SharedLoop(n, kind, ((k, n),), self) for k, (n, kind) in enumerate(self.iters)]

    @property
    def spatial(self) -> list[int]:
        """Numbers of the spatial iterators, in the order of the output's dimensions."""
        if self.order is not None:
            return self.order
        return [k for k, (_, kind) in enumerate(self.iters) if kind == "S"]

    def reads_of(self, buffer: Buffer) -> list[Read]:
        """Return the block's reads of one tensor."""
        return [read for read in self.reads if read.buffer is buffer]

    def tile(self, below: SharedLoop, *, scope: str = "") -> list[int]:
        """Return the extent of each iterator within one iteration of the loop `below`.

        Shared memory (`scope`) is filled for all threads of a block, so their loops always count.
        """
        inside = self.nest
        if below in inside:
            at = inside.index(below) + 1
            inside = inside[at:]
            if scope.startswith("shared"):
                inside = [*(x for x in self.nest[:at] if x.ann in THREADS), *inside]
        sizes = [1] * len(self.iters)
        for loop in (*inside, *self.tail):
            if loop.owner is self:
                for k, n in loop.parts:
                    if 0 <= k < len(sizes):
                        sizes[k] *= max(1, n)
        return [min(size, n) if n else size for size, (n, _) in zip(sizes, self.iters, strict=True)]

    def own_from(self) -> int:
        """Return the position of its first loop over its own iterators."""
        return next((k for k, loop in enumerate(self.nest) if loop.owner is self), len(self.nest))


def span(dims: Dims, tile: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return the elements of each tensor dimension that an access touches within a tile of iterators."""
    sizes = []
    for k, dim in enumerate(dims):
        size = 1
        for it, coefficient in dim:
            if 0 <= it < len(tile):
                size += max(1, abs(coefficient)) * (tile[it] - 1)
        sizes.append(min(size, shape[k]) if k < len(shape) and shape[k] else size)
    return sizes


def identity(places: Iterable[int]) -> Dims:
    """Return the access whose dimension k is iterator ``places[k]``."""
    return tuple(((place, 1),) for place in places)


def through(outer: Dims, inner: Dims, spatial: Sequence[int]) -> Dims:
    """Return the composed access: `outer` reads a block's output, `inner` is what that block reads for it.

    Parameters
    ----------
    spatial : sequence of int
        The block's spatial iterators, in the order of its output's dimensions.
    """
    of = {it: outer[k] for k, it in enumerate(spatial) if k < len(outer)}
    return tuple(
        tuple((it, c * coefficient) for inside, coefficient in dim for it, c in of.get(inside, ()))
        for dim in inner
    )


def from_stages(stages: Sequence[Stage]) -> tuple[list[Block], dict[str, Buffer]]:
    """Return the blocks of an unscheduled program in order, and its arguments by name."""
    buffers: list[Buffer] = []
    blocks: list[Block] = []
    arguments: dict[str, Buffer] = {}
    for stage in stages:
        if stage.kind == "placeholder":
            buffer = Buffer(stage.name, stage.shape, None, "", stage.dtype_bytes)
            arguments[stage.name] = buffer
        else:
            block = Block(stage.name, [(i.extent, i.kind) for i in stage.iters], source=stage)
            buffer = Buffer(stage.name, stage.shape, block, "", stage.dtype_bytes)
            block.writes = buffer
            blocks.append(block)
        buffers.append(buffer)
    for block in blocks:
        assert block.source is not None
        for access in block.source.reads:
            known = 0 <= access.stage < len(buffers)
            buffer = buffers[access.stage] if known else Buffer("", access.shape)
            block.reads.append(Read(buffer, access.dims))
    return blocks, arguments


# Names of loops, blocks and values in the texts of a trace's actions.


MAX_WORD = 40  # characters kept of a foreign text


def of(loop: SharedLoop) -> str:
    return loop.owner.name if loop.owner is not None else "loop"


def axis(loop: SharedLoop) -> str:
    if len(loop.parts) != 1 or loop.parts[0][0] < 0:
        return "fused"
    return f"{'r' if loop.kind == 'R' else 'x'}{loop.parts[0][0]}"


def short(x: Any) -> str:
    if isinstance(x, Block):
        return x.name[:MAX_WORD]
    if isinstance(x, SharedLoop):
        return f"{of(x)} {axis(x)} {x.extent}"
    if isinstance(x, (list, tuple)):
        return " ".join(short(part) for part in x[:8])
    return str(x)[:MAX_WORD]


def unknown(name: str) -> Any:
    """Return a placeholder for a random variable whose instruction was not understood."""
    if name[:1] == "b":
        return Block(name)
    return SharedLoop(0, "S", ((-1, 0),)) if name[:1] == "l" else 0


class NestState:
    """Blocks and random variables of one candidate, which a trace's primitives change."""

    def __init__(self, stages: Sequence[Stage] = (), *, worded: bool = True) -> None:
        self.known = bool(stages)
        self.worded = worded
        self.blocks, self.arguments = from_stages(stages)
        self.root = Block("root", role="root")
        self.values: dict[str, Any] = {}  # random variables: blocks, loops, numbers
        self.marks: dict[str, Any] = {}  # annotations without a field in a loop or block
        self.splits: list[int] = []
        self.counts: dict[str, int] = {}

    def value(self, x: Any) -> Any:
        if not isinstance(x, str):
            return x
        if x in self.values:
            return self.values[x]
        if x == "None":
            return None
        return x[1:-1] if x[:1] == '"' else x

    def block(self, x: Any) -> Block:
        found = self.value(x)
        if isinstance(found, Block):
            return found
        raise LookupError(x)

    def loop(self, x: Any) -> SharedLoop:
        found = self.value(x)
        if isinstance(found, SharedLoop):
            return found
        raise LookupError(x)

    def give(self, instruction: Instruction, found: Sequence[Any]) -> None:
        """Define the instruction's outputs."""
        self.values.update(zip(instruction.outputs, found))
        for name in instruction.outputs[len(found) :]:
            self.values[name] = unknown(name)

    def under(self, loop: SharedLoop) -> list[Block]:
        return [block for block in self.blocks if loop in block.nest or loop in block.tail]

    def consumers(self, block: Block) -> list[Block]:
        """Return the blocks that read a block's output. Readers of an inlined block read its inputs."""
        others = (b for b in self.blocks if b is not block and not b.inlined)
        return [b for b in others if any(r.buffer is block.writes for r in b.reads)]

    def insert(self, block: Block, *, before: Block | None = None, after: Block | None = None) -> None:
        if block in self.blocks:
            self.blocks.remove(block)
        if before is not None and before in self.blocks:
            self.blocks.insert(self.blocks.index(before), block)
        elif after is not None and after in self.blocks:
            self.blocks.insert(self.blocks.index(after) + 1, block)
        else:
            self.blocks.insert(0, block)
