"""How products are divided into blocks: the sizes with which a core is expected to take the least time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wmsched.features.vector_width import Registers
from wmsched.relax.choices.core import Core
from wmsched.relax.int8.geometry import Geometry
from wmsched.relax.int8.product import count_of

__all__ = ["MAX_ROWS", "MAX_VECTORS", "Blocks", "block_cycles", "blocks_of", "kernel_pays"]

MAX_ROWS, MAX_VECTORS = 14, 4  # of a block
LATENCY = 8  # multiply-adds that a core has under way at once, of two units: fewer sums wait for each other
BYTES = 4  # of a float32
FAR_VECTOR_CYCLES = 0.75  # what a vector of weights costs that the first cache does not hold
NEAR_BYTES = 1 << 20  # that a core keeps near while it reads them again
#: Weights come from memory, each time that a model is called; rows come from the function before.
FAR_BYTES_A_CYCLE, SHARED_BYTES_A_CYCLE, NEAR_BYTES_A_CYCLE, AGAIN_BYTES_A_CYCLE = 4.0, 16.0, 16.0, 64.0
TASK_CYCLES = 400  # of beginning a task
MIN_TASKS = 12  # of a thread, so that one that is disturbed leaves the others its own
MIN_ROWS, MIN_OUTPUTS, MIN_DEPTH = 8, 17, 24  # below, searched schedules are faster
MIN_GATHERED_DEPTH = 64  # of a convolution whose rows are gathered
MANY_ROWS = 1024  # for which results narrower than a vector have a kernel
MIN_WASTE = 1.5  # vectors of a searched schedule, which divides columns by factors, over those with padding


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """How a product is divided.

    Parameters
    ----------
    rows : int
        Of a block; the last one overlaps the one before, which computes the same.
    vectors : int
        Of columns in a block; the last block may have fewer.
    lanes : int
        Columns of a vector.
    held : bool
        Whether a task is one block of columns and all rows, so that its weights are read once; else it is
        some blocks of rows and all columns, which leaves rows near the core that computes them next.
    group : int
        Blocks of rows in a task, if it has all columns.

    Examples
    --------
    >>> blocks_of(Geometry(batch=1, height=28, width=28, channels=58, outputs=58), Core(AVX512, 2))
    Blocks(rows=14, vectors=2, lanes=16, held=False, group=2)
    """

    rows: int
    vectors: int
    lanes: int
    held: bool
    group: int = 1


def blocks_of(shape: Geometry, core: Core, count: int = 0) -> Blocks:
    """Return the blocks with which a core is expected to take the least time.

    Parameters
    ----------
    count : int
        Of products that have weights of their own; 0 if there is one product.
    """
    lanes = core.registers.lanes
    vectors = count_of(shape.outputs, lanes)
    weights, rows = BYTES * vectors * lanes * shape.depth, BYTES * shape.rows * shape.depth

    def cycles(blocks: Blocks) -> tuple[float, int]:
        parts, turns = count_of(vectors, blocks.vectors), count_of(shape.rows, blocks.rows)
        last = vectors - (parts - 1) * blocks.vectors
        line = (parts - 1) * block_cycles(blocks.rows, blocks.vectors) + block_cycles(blocks.rows, last)
        tasks = parts if blocks.held else max(count, 1) * count_of(turns, blocks.group)
        own = count_of(tasks, core.threads)  # of the thread that has most
        share = own / tasks
        if blocks.held:
            crossing = (rows + BYTES * shape.rows * shape.outputs) * (1 - share)  # from core to core
            moved = (weights * share + crossing) / FAR_BYTES_A_CYCLE
            moved += rows / NEAR_BYTES_A_CYCLE + _again(rows, own)
            if not shape.direct:  # all rows are gathered in memory first
                moved += 2 * rows * share / SHARED_BYTES_A_CYCLE
        elif count:
            moved = count * (weights / FAR_BYTES_A_CYCLE + rows / NEAR_BYTES_A_CYCLE)
            moved = share * (moved + count * _again(weights, count_of(turns, blocks.group)))
        else:
            moved = weights / FAR_BYTES_A_CYCLE + _again(weights, own) + rows * share / NEAR_BYTES_A_CYCLE
        work = max(count, 1) * turns * line * shape.depth * share
        return work + moved + TASK_CYCLES * own, -blocks.rows * blocks.vectors

    def options() -> Iterator[Blocks]:
        for high, wide in _options(core.registers, shape.rows, vectors):
            if not count:  # of several matrices a thread has whole ones
                yield Blocks(rows=high, vectors=wide, lanes=lanes, held=True)
            group, turns = 1, count_of(shape.rows, high)
            while group <= turns and (
                group == 1 or turns * max(count, 1) >= MIN_TASKS * core.threads * group
            ):
                yield Blocks(rows=high, vectors=wide, lanes=lanes, held=False, group=group)
                group *= 2

    return min(options(), key=cycles)


def _again(size: int, times: int) -> float:
    """Return the cycles of reading bytes several times, the first of which is counted elsewhere."""
    return size * (times - 1) / (AGAIN_BYTES_A_CYCLE if size <= NEAR_BYTES else SHARED_BYTES_A_CYCLE)


def _options(registers: Registers, rows: int, vectors: int) -> Iterator[tuple[int, int]]:
    for wide in range(1, min(MAX_VECTORS, vectors) + 1):
        most = (registers.number - wide - 1) // wide  # one register has a number of the rows
        for high in range(1, min(most, MAX_ROWS, rows) + 1):
            yield high, wide


def block_cycles(high: int, wide: int) -> float:
    """Return the cycles of one step of a block: multiply-adds or loads, two each a cycle, and far weights."""
    return max(high * wide, high + wide, LATENCY) / 2 + FAR_VECTOR_CYCLES * wide


def kernel_pays(shape: Geometry, core: Core, *, packs: bool = False) -> bool:
    """Return whether a product has a kernel by the rules.

    A kernel is near what a core can do, and needs no search. Small sums are stored and read again, which
    searched schedules spare. Products of two computed tensors pay for their packing where a schedule's
    vectors would not be full.
    """
    if shape.outputs < core.registers.lanes:  # a schedule's vectors would be as narrow
        return not packs and shape.rows >= MANY_ROWS and shape.depth >= MIN_DEPTH
    if shape.rows < MIN_ROWS:
        return False
    if _waste(shape.outputs, core.registers.lanes) >= MIN_WASTE:
        return True
    least = MIN_DEPTH if shape.direct else MIN_GATHERED_DEPTH
    return not packs and shape.depth >= least and shape.outputs >= MIN_OUTPUTS


def _waste(outputs: int, lanes: int) -> float:
    """Return vector instructions for `outputs` numbers by their best factor, over those with padding.

    A factor fills vectors but for one of half the lanes.
    """
    half = lanes // 2
    most = max(
        k for k in range(1, min(outputs, 4 * lanes) + 1) if outputs % k == 0 and (k % half == 0 or k < half)
    )
    return count_of(most, lanes) * (outputs // most) / count_of(outputs, lanes)
