"""Memory of a tiled block: what a tile reads and writes (F), what moves in all (Q), and the memories' sizes.

Gensor (arXiv 2502.11407) names both and defines neither for a reduction. Here F is the bytes that one tile
touches. Q counts every input once for each tile, and the output once for each spatial tile, as sums are kept
in the level where they are made (notes, ambiguity 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wmsched.features.hardware import hardware_features, is_gpu
from wmsched.features.table import HARDWARE_NAMES
from wmsched.schedules.types import Workload
from wmsched.search.decision_space import CPU_TILE_LEVELS, DecisionSpace, Row, Slot

Extents = tuple[int, ...]  # of a tile, one an iterator of the block

#: (latency in ns, bandwidth in bytes a ns) of the memories of a core, and of a GPU's multiprocessor. They are
#: nominal figures of their kinds, as Gensor takes those of data sheets.
L2_SPEED, L1_SPEED, REGISTER_SPEED = (4.0, 48.0), (1.3, 128.0), (0.3, 384.0)
SHARED_SPEED, GPU_REGISTER_SPEED = (20.0, 200.0), (1.0, 2000.0)
AVX512_REGISTERS, OTHER_REGISTERS = 32, 16  # vectors of a core
THREAD_REGISTER_BYTES = 255 * 4  # of a GPU's thread
SHARED = "shared"  # name of a GPU's shared memory, which processors lack
BANKS = 32  # of shared memory, each as wide as a float32


@dataclass(frozen=True)
class Level:
    """One memory, and the lengths of a tile that are within it.

    Parameters
    ----------
    name : str
    spatial, reduction : int
        First length within the level, of a spatial loop and of one that sums up.
    spatial_moves, reduction_moves : (tuple of int, int) or None
        Lengths that a factor moves between where a tile of this level grows: from the first that has one, to
        the last number. A tile that fills the one around it thus grows that too. None: it does not grow.
    capacity : float
        Bytes.
    latency, bandwidth : float
        ns; bytes a ns.
    """

    name: str
    spatial: int
    reduction: int
    spatial_moves: tuple[tuple[int, ...], int] | None
    reduction_moves: tuple[tuple[int, ...], int] | None
    capacity: float
    latency: float
    bandwidth: float


def levels_of(workload: Workload) -> tuple[Level, ...]:
    """Return the memories of a workload's target, outermost first.

    A processor's tiles are SSRSRS: the loops within the first S are in the second-level cache, those within
    the first R in the first-level cache, those within the second R in registers. A GPU's are SSSRRSRS, of
    which the S are blocks, virtual threads, threads, and two loops of a thread: a block's tile is in shared
    memory, a thread's in registers. So the paper's L = 2 (notes, ambiguities 7 and 11).
    """
    known = dict(zip(HARDWARE_NAMES, hardware_features(workload).tolist()))
    if is_gpu(workload.target):
        shared = 2 ** known["h.log2_shared_memory"] - 1
        return (
            Level(SHARED, 1, 1, ((0,), 2), ((0,), 1), shared, *SHARED_SPEED),
            Level("registers", 3, 2, ((2, 0), 4), ((1, 0), 2), THREAD_REGISTER_BYTES, *GPU_REGISTER_SPEED),
        )
    vectors = AVX512_REGISTERS if known["h.avx512"] else OTHER_REGISTERS
    return (
        Level("L2", 1, 0, ((0,), 1), None, 2 ** known["h.log2_l2_bytes"] - 1, *L2_SPEED),
        Level("L1", 2, 1, ((1, 0), 2), ((0,), 1), 2 ** known["h.log2_l1_bytes"] - 1, *L1_SPEED),
        Level("registers", 3, 2, ((2, 1, 0), 3), None, vectors * known["h.vector_bytes"], *REGISTER_SPEED),
    )


@dataclass(frozen=True)
class TiledBlock:
    """The block of a space that multi-level tiling splits.

    Parameters
    ----------
    slots : tuple of Slot
        The tile of each iterator of the block.
    kinds : tuple of str
        "S" or "R" of each.
    reads : tuple of (dims, shape, bytes)
        Of each tensor read: (iterator, coefficient) pairs of each index, the shape, bytes of an element.
    written : int
        Bytes of an element of the output.
    """

    slots: tuple[Slot, ...]
    kinds: tuple[str, ...]
    reads: tuple[tuple[tuple[tuple[tuple[int, int], ...], ...], tuple[int, ...], int], ...]
    written: int = 4

    def tile(self, row: Row, level: Level) -> Extents:
        """Return the iterations of each iterator that are within a level."""
        found = []
        for slot, kind in zip(self.slots, self.kinds):
            first = level.spatial if kind == "S" else level.reduction
            found.append(math.prod(row[slot.start + min(first, slot.parts) : slot.start + slot.parts]))
        return tuple(found)

    def footprint(self, tile: Extents) -> float:
        """Return F: the bytes that one tile touches."""
        return self._read(tile) + self._written(tile)

    def traffic(self, tile: Extents) -> float:
        """Return Q: the bytes that all tiles of this size move."""
        times = [slot.extent / length for slot, length in zip(self.slots, tile)]
        spatial = math.prod(n for n, kind in zip(times, self.kinds) if kind == "S")
        return self._read(tile) * math.prod(times) + self._written(tile) * spatial

    def overflows(self, row: Row, levels: Sequence[Level]) -> bool:
        """Return whether a tile exceeds the memory that it is for."""
        return any(self.footprint(self.tile(row, level)) > level.capacity for level in levels)

    def moving_time(self, row: Row, levels: Sequence[Level]) -> float:
        """Return the ns that all traffic takes, from level to level."""
        return sum(self.traffic(self.tile(row, level)) / level.bandwidth for level in levels)

    def _written(self, tile: Extents) -> float:
        return float(self.written * math.prod(n for n, kind in zip(tile, self.kinds) if kind == "S"))

    def _read(self, tile: Extents) -> float:
        total = 0.0
        for dims, shape, size in self.reads:
            elements = 1
            for place, dim in enumerate(dims):
                extent = 1 + sum(abs(coefficient) * (tile[it] - 1) for it, coefficient in dim)
                elements *= min(extent, shape[place]) if place < len(shape) and shape[place] else extent
            total += elements * size
        return total


def tiled_block(space: DecisionSpace, workload: Workload) -> TiledBlock | None:
    """Return the block of a space that has a tile for each of its loops; None without one.

    Softmax, pooling and sums have none: MetaSchedule tiles none of their spatial loops.
    """
    loops: dict[str, tuple[str, int]] = {}  # variable -> the block's variable, and which of its loops
    names, told = {}, {}
    for number, (kind, inputs, attributes, outputs) in enumerate(space.instructions):
        if kind == "GetSBlock":
            names[outputs[0]] = attributes[0]
        elif kind == "GetLoops":
            loops |= {loop: (inputs[0], place) for place, loop in enumerate(outputs)}
        elif kind == "SamplePerfectTile" and inputs[0] in loops:
            told[number] = loops[inputs[0]]
    tiles: dict[str, dict[int, Slot]] = {}
    for slot in space.slots:
        if slot.instruction in told:
            block, place = told[slot.instruction]
            tiles.setdefault(block, {})[place] = slot
    stages = {stage.name: stage for stage in workload.stages}
    for block, slots in tiles.items():
        stage = stages.get(names.get(block, ""))
        if stage is None or len(slots) != len(stage.iters):
            continue
        ordered = tuple(slots[place] for place in range(len(slots)))
        if [slot.extent for slot in ordered] != [it.extent for it in stage.iters]:
            continue
        if max(slot.parts for slot in ordered) < CPU_TILE_LEVELS:
            continue
        reads = tuple(
            (access.dims, access.shape, _bytes_of(workload, access.stage)) for access in stage.reads
        )
        return TiledBlock(ordered, tuple(it.kind for it in stage.iters), reads, stage.dtype_bytes)
    return None


def _bytes_of(workload: Workload, stage: int) -> int:
    return workload.stages[stage].dtype_bytes if 0 <= stage < len(workload.stages) else 4
