"""Split-K design spaces for a GPU, which MetaSchedule lacks: over the grid, or over a block's threads.

MetaSchedule lets one thread add up the whole sum of an output element. Few elements with long sums, as in a
matrix-vector product, then use a sixth of a GPU's memory bandwidth. A dense layer of 100 rows has too few
tiles for all multiprocessors. This rule splits such a sum in two steps (`Schedule.rfactor`): partial sums,
and the sum of these. It runs before MetaSchedule's rules and keeps the unsplit block too, so the cost model
chooses among all spaces.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import DataType
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule
from tvm.tirx import Var

from wmsched.features.hardware import hardware_parameters
from wmsched.metaschedule.rules.block_loops import BlockLoops, numbers
from wmsched.toolchain.targets import target_text

__all__ = ["SplitReduction"]

logger = logging.getLogger("wmsched")

# Split over the grid: numbers of parts, and how many of them become spaces; minimum terms of a part and of a
# sum; output elements of a tile; tiles for each multiprocessor (below the minimum it idles, above the maximum
# nothing is gained).
PART_COUNTS, MAX_GRID_SPACES = (2, 4, 8, 16, 32), 3
MIN_PART_TERMS, MIN_SPLIT_TERMS = 32, 128
TILE_ELEMENTS, MIN_TILES_PER_SM, MAX_TILES_PER_SM = 64 * 64, 0.7, 4
FINAL_SUM_THREADS = 128  # threads of a block in the kernel that adds the parts
# Split over threads: maximum multiplications for each element of the largest input; threads along the sum,
# output elements of a block, elements of a vector load.
MAX_REUSE = 4
LANE_CHOICES, ROW_CHOICES, VECTOR_CHOICES = (8, 16, 32, 64, 128, 256, 512), (1, 2, 4, 8, 16, 32), (1, 2, 4)
MIN_THREADS, MAX_THREADS = 32, 1024  # of a block
TILING_KEY = "meta_schedule.tiling_structure"  # MetaSchedule's rules skip a block with this annotation
MAX_INNERMOST, FETCH_VECTORS = 64, (1, 2, 3, 4)  # as in MetaSchedule's rules
HALF_BITS, HALF_VECTORS = 16, (1, 2, 4)  # apache-tvm 0.27 writes no CUDA for three half floats


@derived_object
class SplitReduction(PyScheduleRule):
    """Schedule rule that adds split-K spaces, for MetaSchedule's `PostOrderApply`.

    >>> rules = [SplitReduction(), *ms.ScheduleRule.create("cuda")]
    >>> space = ms.space_generator.PostOrderApply(sch_rules=rules)
    """

    def __init__(self) -> None:
        super().__init__()
        self.multiprocessors = 0

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.multiprocessors = max(1, hardware_parameters(target_text(context.target))[0])

    def apply(self, sch: Any, block: Any) -> list[Any]:
        found = [sch]
        total = Sum.of(sch, block)
        if total is None:
            return found
        made: list[Callable[..., Any]] = []
        if total.elements * total.terms <= MAX_REUSE * max(each.elements for each in total.inputs):
            made.append(_over_threads)
        if total.terms >= MIN_SPLIT_TERMS:
            made += [
                functools.partial(_over_grid, parts=n) for n in _part_counts(total, self.multiprocessors)
            ]
        for make in made:
            try:
                one = make(sch.copy(), block, total)
            except Exception as error:  # a primitive does not apply; TVM's errors have no common base
                logger.debug("a sum is not split: %s", str(error)[-300:])
                continue
            if one is not None:
                found.append(one)
        return found

    def clone(self) -> Any:
        return SplitReduction()


def _part_counts(total: Sum, multiprocessors: int) -> list[int]:
    """Return the numbers of parts that give each multiprocessor about one to four tiles."""
    tiles = total.elements / (TILE_ELEMENTS * multiprocessors)
    terms = total.extents[total.longest]
    possible = [
        n
        for n in PART_COUNTS
        if terms % n == 0 and terms // n >= MIN_PART_TERMS and n * tiles <= MAX_TILES_PER_SM
    ]
    enough = [n for n in possible if n * tiles >= MIN_TILES_PER_SM]
    return (enough or possible[-1:])[-MAX_GRID_SPACES:]


def _choice(schedule: Any, values: Sequence[int]) -> Any:
    return schedule.sample_categorical(list(values), [1.0 / len(values)] * len(values))


def _divisors(number: int, values: Sequence[int], most: int) -> list[int]:
    return [value for value in values if number % value == 0 and value <= most]


def _over_threads(schedule: Any, block: Any, total: Sum) -> Any:
    """Split a matrix-vector sum over the threads of a block; None if that does not apply.

    Neighbouring threads read neighbouring elements: `threadIdx.x` runs along the sum if the largest input
    does, else along the output.
    """
    if [k for k in total.reduced if total.extents[k] > 1] != [total.longest]:
        return None  # elements of nested reduction loops are not neighbours
    largest = max(total.inputs, key=lambda each: each.elements)
    along = largest.last is not None and largest.last.same_as(total.names[total.longest])
    terms = total.extents[total.longest]
    vectors = _divisors(terms, VECTOR_CHOICES, max(1, terms // LANE_CHOICES[0])) if along else [1]
    lanes = _divisors(terms // vectors[-1], LANE_CHOICES, MAX_THREADS // ROW_CHOICES[0])
    rows = _divisors(
        total.elements, ROW_CHOICES if along else LANE_CHOICES, MAX_THREADS // max(LANE_CHOICES[:1])
    )
    if not lanes or not rows:
        return None
    loops = schedule.get_loops(block)
    vector, lane = _choice(schedule, vectors), _choice(schedule, lanes)
    _, mine, _ = schedule.split(loops[total.longest], [None, lane, vector])
    partial = schedule.rfactor(mine, 0)
    copy = schedule.cache_write(block, 0, "local")
    grid, row = schedule.split(schedule.fuse(*schedule.get_loops(copy)), [None, _choice(schedule, rows)])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(row, "threadIdx.y" if along else "threadIdx.x")
    across = "threadIdx.x" if along else "threadIdx.y"
    schedule.compute_at(block, row, preserve_unit_loops=True)
    _, _, shared, *units = schedule.get_loops(block)
    schedule.reorder(*units, shared)  # a cross-thread reduction must be the innermost loop
    schedule.bind(shared, across)
    schedule.compute_at(partial, row, preserve_unit_loops=True)
    schedule.bind(schedule.get_loops(partial)[2], across)
    schedule.set_scope(partial, 0, "local")
    steps = schedule.get_loops(partial)[-2]
    for place, each in enumerate(total.inputs):
        if each.last is not None and each.last.same_as(total.names[total.longest]):
            fetched = schedule.cache_read(partial, place, "local")
            schedule.compute_at(fetched, steps, preserve_unit_loops=True)
            schedule.vectorize(schedule.get_loops(fetched)[-1])
    schedule.annotate(block, TILING_KEY, "parts")
    schedule.annotate(partial, TILING_KEY, "parts")
    return schedule


def _over_grid(schedule: Any, block: Any, total: Sum, *, parts: int) -> Any:
    """Split a tiled sum over blocks of threads; a small kernel adds the parts."""
    outer, _ = schedule.split(schedule.get_loops(block)[total.longest], [parts, None])
    partial = schedule.rfactor(outer, 0)
    copy = schedule.cache_write(block, 0, "local")
    grid, thread = schedule.split(schedule.fuse(*schedule.get_loops(copy)), [None, FINAL_SUM_THREADS])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.compute_at(block, thread, preserve_unit_loops=True)
    schedule.annotate(block, TILING_KEY, "parts")
    _tile(schedule, partial, total)
    return schedule


def _tile(schedule: Any, partial: Any, total: Sum) -> None:
    """Tile the parts as MetaSchedule does (SSSRRSRS); each part has thread blocks of its own."""
    loops = schedule.get_loops(partial)
    part = loops.pop(total.longest)
    spatial: list[list[Any]] = []
    reduced: list[list[Any]] = []
    for k, loop in enumerate(loops):
        tiles, levels = (spatial, 5) if k in total.spatial else (reduced, 3)
        factors = schedule.sample_perfect_tile(loop, levels, MAX_INNERMOST)
        tiles.append(list(schedule.split(loop, factors)))
    s, r = list(zip(*spatial)), list(zip(*reduced))
    schedule.reorder(part, *s[0], *s[1], *s[2], *r[0], *r[1], *s[3], *r[2], *s[4])
    schedule.bind(part, "blockIdx.y")
    schedule.bind(schedule.fuse(*s[0]), "blockIdx.x")
    schedule.bind(schedule.fuse(*s[1]), "vthread.x")
    thread = schedule.fuse(*s[2])
    schedule.bind(thread, "threadIdx.x")
    schedule.annotate(partial, TILING_KEY, "SSSRRSRS")
    schedule.annotate(partial, "meta_schedule.thread_extent_low_inclusive", MIN_THREADS)
    schedule.annotate(partial, "meta_schedule.thread_extent_high_inclusive", MAX_THREADS)
    made = schedule.cache_write(partial, 0, "local")
    schedule.reverse_compute_at(made, thread, preserve_unit_loops=True)
    for number in range(len(total.inputs)):
        fetched = schedule.cache_read(partial, number, "shared", [partial])
        schedule.compute_at(fetched, r[0][-1], preserve_unit_loops=True)
        dimensions = schedule.get_loops(fetched)[-total.inputs[number].dimensions :]
        schedule.fuse(*dimensions)
        (copied,) = schedule.copy().get(fetched).writes
        vectors = HALF_VECTORS if DataType(str(copied.source.dtype)).bits == HALF_BITS else FETCH_VECTORS
        schedule.annotate(fetched, "meta_schedule.cooperative_fetch", _choice(schedule, vectors))


class Input(NamedTuple):
    """Input of a sum: number of dimensions, number of elements, last index (None if no variable)."""

    dimensions: int
    elements: int
    last: Any


@dataclass(frozen=True)
class Sum:
    """TensorIR block that sums, and reads some input for several output elements.

    Parameters
    ----------
    spatial, reduced : list of int
        Indices of its spatial and reduction loops.
    extents : list of int
        Extents of all loops.
    longest : int
        Index of the reduction loop with most terms.
    inputs : list of Input
    names : list of Var
        The block's variables, one a loop.
    """

    spatial: list[int]
    reduced: list[int]
    extents: list[int]
    longest: int
    inputs: list[Input]
    names: list[Any]

    @property
    def elements(self) -> int:
        return math.prod(self.extents[k] for k in self.spatial)

    @property
    def terms(self) -> int:
        return math.prod(self.extents[k] for k in self.reduced)

    @staticmethod
    def of(schedule: Any, block: Any) -> Sum | None:
        """Return the `Sum` of a block; None if it is no such block or is scheduled already."""
        loops = BlockLoops.of(schedule, block)
        if loops is None or len(loops.stated.writes) != 1 or len(loops.stated.reads) < 2:
            return None
        inputs, again = [], False
        for region in loops.stated.reads:
            if region.source.same_as(loops.stated.writes[0].source):
                continue
            shape = numbers(region.source.ty.shape)
            if shape is None:
                return None
            again |= loops.is_read_again(region.region)
            last = region.region[-1].min if len(region.region) else None
            inputs.append(Input(len(shape), math.prod(shape), last if isinstance(last, Var) else None))
        if not again:  # no reuse: MetaSchedule has a rule for such sums
            return None
        longest = max((loops.extents[k], -k) for k in loops.reduced)
        return Sum(loops.spatial, loops.reduced, loops.extents, -longest[1], inputs, loops.names)
