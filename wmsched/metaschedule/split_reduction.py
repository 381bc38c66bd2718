"""Spaces for a GPU that MetaSchedule does not make: a sum in parts, over the grid or over a block's threads.

MetaSchedule gives each element of the output to one thread, which adds up its whole sum. A matrix times a
vector has few elements and long sums: it takes a GPU's memory at a sixth of its rate so. A dense layer of a
hundred rows has too few tiles for all multiprocessors. Here such sums are made in two steps
(`Schedule.rfactor`): parts of it, and the sum of the parts. The rule comes before MetaSchedule's own and
leaves the block as it is besides, so all of its spaces are there too; which is the better one the cost model
says.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule
from tvm.tirx import IterVar, Var
from tvm.tirx.analysis import undefined_vars

from wmsched.features.hardware import hardware_parameters
from wmsched.toolchain.resolve import is_cpu
from wmsched.toolchain.targets import target_text

__all__ = ["SplitReduction", "space_generator"]

logger = logging.getLogger("wmsched")

# A sum over the grid: numbers of parts, and how many of them are tried; terms of a part, and of a sum that is
# worth it; elements of the output that a block of threads has where there is enough to do, and such tiles for
# each multiprocessor: with fewer it idles, more are no gain.
PARTS, SPACES = (2, 4, 8, 16, 32), 3
SHORTEST, LONG = 32, 128
TILE, FEW, FULL = 64 * 64, 0.7, 4
ADDERS = 128  # threads of a block of the kernel that adds the parts up
# A sum over threads: multiplications for each element of the largest input, at most; threads along the sum,
# elements of the output in a block, numbers that are read at once.
REUSED = 4
LANES, ROWS, VECTORS = (8, 16, 32, 64, 128, 256, 512), (1, 2, 4, 8, 16, 32), (1, 2, 4)
WARP, THREADS = 32, 1024  # of a block: at least, at most
STRUCTURE = "meta_schedule.tiling_structure"  # whose blocks MetaSchedule's rules leave alone
INNERMOST, FETCHED = 64, (1, 2, 3, 4)  # MetaSchedule's: the longest tile, elements that are fetched at once


def space_generator(target: Any) -> Any:
    """What `TuneContext` takes: MetaSchedule's spaces for a target, on a GPU with sums in parts besides."""
    if is_cpu(target) or target.kind.name != "cuda":
        return "post-order-apply"
    kind = "cuda"
    custom, *others = ms.ScheduleRule.create(kind)
    rules = [custom, SplitReduction()]
    for rule in others:
        # An output with two operands, such as GELU's product, is tried before its operands are inlined and
        # has two producers then; tried again it goes into the sum's kernel.
        rules += [rule] * (2 if isinstance(rule, ms.schedule_rule.AutoInline) else 1)
    return ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=ms.Postproc.create(kind),
        mutator_probs=ms.Mutator.create(kind),
    )


@derived_object
class SplitReduction(PyScheduleRule):
    """The rule, for `tvm.s_tir.meta_schedule.space_generator.PostOrderApply`."""

    def __init__(self) -> None:
        super().__init__()
        self.multiprocessors = 0

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.multiprocessors = max(1, hardware_parameters(target_text(context.target))[0])

    def apply(self, sch: Any, block: Any) -> list[Any]:
        found = [sch]
        told = Sum.of(sch, block)
        if told is None:
            return found
        made: list[Callable[..., Any]] = []
        if told.elements * told.terms <= REUSED * max(each.elements for each in told.inputs):
            made.append(_over_threads)
        if told.terms >= LONG:
            made += [functools.partial(_over_grid, parts=n) for n in _parts(told, self.multiprocessors)]
        for make in made:
            try:
                one = make(sch.copy(), block, told)
            except Exception as error:  # of a primitive that does not apply; TVM's have no common base
                logger.debug("a sum is not made in parts: %s", str(error)[-300:])
                continue
            if one is not None:
                found.append(one)
        return found

    def clone(self) -> Any:
        return SplitReduction()


def _parts(told: Sum, multiprocessors: int) -> list[int]:
    """Numbers of parts that leave each multiprocessor about one to four tiles."""
    tiles = told.elements / (TILE * multiprocessors)
    terms = told.extents[told.longest]
    possible = [n for n in PARTS if terms % n == 0 and terms // n >= SHORTEST and n * tiles <= FULL]
    enough = [n for n in possible if n * tiles >= FEW]
    return (enough or possible[-1:])[-SPACES:]


def _choice(schedule: Any, values: Sequence[int]) -> Any:
    return schedule.sample_categorical(list(values), [1.0 / len(values)] * len(values))


def _dividing(number: int, values: Sequence[int], most: int) -> list[int]:
    return [value for value in values if number % value == 0 and value <= most]


def _over_threads(schedule: Any, block: Any, told: Sum) -> Any:
    """A matrix times a vector: the threads of a block share each sum.

    Neighbours read what lies side by side: `threadIdx.x` goes along the sum where the largest input does, and
    along the output's elements else.
    """
    if [k for k in told.reduced if told.extents[k] > 1] != [told.longest]:
        return None  # several loops in one another: their elements do not lie side by side
    largest = max(told.inputs, key=lambda each: each.elements)
    along = largest.last is not None and largest.last.same_as(told.names[told.longest])
    terms = told.extents[told.longest]
    vectors = _dividing(terms, VECTORS, max(1, terms // LANES[0])) if along else [1]
    lanes = _dividing(terms // vectors[-1], LANES, THREADS // ROWS[0])
    rows = _dividing(told.elements, ROWS if along else LANES, THREADS // max(LANES[:1]))
    if not lanes or not rows:
        return None
    loops = schedule.get_loops(block)
    vector, lane = _choice(schedule, vectors), _choice(schedule, lanes)
    _, mine, _ = schedule.split(loops[told.longest], [None, lane, vector])
    partial = schedule.rfactor(mine, 0)
    copy = schedule.cache_write(block, 0, "local")
    grid, row = schedule.split(schedule.fuse(*schedule.get_loops(copy)), [None, _choice(schedule, rows)])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(row, "threadIdx.y" if along else "threadIdx.x")
    across = "threadIdx.x" if along else "threadIdx.y"
    schedule.compute_at(block, row, preserve_unit_loops=True)
    _, _, shared, *units = schedule.get_loops(block)
    schedule.reorder(*units, shared)  # a sum that threads share has to be the innermost loop
    schedule.bind(shared, across)
    schedule.compute_at(partial, row, preserve_unit_loops=True)
    schedule.bind(schedule.get_loops(partial)[2], across)
    schedule.set_scope(partial, 0, "local")
    steps = schedule.get_loops(partial)[-2]
    for place, each in enumerate(told.inputs):
        if each.last is not None and each.last.same_as(told.names[told.longest]):
            fetched = schedule.cache_read(partial, place, "local")
            schedule.compute_at(fetched, steps, preserve_unit_loops=True)
            schedule.vectorize(schedule.get_loops(fetched)[-1])
    schedule.annotate(block, STRUCTURE, "parts")
    schedule.annotate(partial, STRUCTURE, "parts")
    return schedule


def _over_grid(schedule: Any, block: Any, told: Sum, *, parts: int) -> Any:
    """A tiled sum whose parts are other blocks of threads' work, and a small kernel that adds them up."""
    outer, _ = schedule.split(schedule.get_loops(block)[told.longest], [parts, None])
    partial = schedule.rfactor(outer, 0)
    copy = schedule.cache_write(block, 0, "local")
    grid, thread = schedule.split(schedule.fuse(*schedule.get_loops(copy)), [None, ADDERS])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.compute_at(block, thread, preserve_unit_loops=True)
    schedule.annotate(block, STRUCTURE, "parts")
    _tile(schedule, partial, told)
    return schedule


def _tile(schedule: Any, partial: Any, told: Sum) -> None:
    """MetaSchedule's tiles (SSSRRSRS) of the parts, each of which is a block's of threads of its own."""
    loops = schedule.get_loops(partial)
    part = loops.pop(told.longest)
    spatial: list[list[Any]] = []
    reduced: list[list[Any]] = []
    for k, loop in enumerate(loops):
        tiles, levels = (spatial, 5) if k in told.spatial else (reduced, 3)
        factors = schedule.sample_perfect_tile(loop, levels, INNERMOST)
        tiles.append(list(schedule.split(loop, factors)))
    s, r = list(zip(*spatial)), list(zip(*reduced))
    schedule.reorder(part, *s[0], *s[1], *s[2], *r[0], *r[1], *s[3], *r[2], *s[4])
    schedule.bind(part, "blockIdx.y")
    schedule.bind(schedule.fuse(*s[0]), "blockIdx.x")
    schedule.bind(schedule.fuse(*s[1]), "vthread.x")
    thread = schedule.fuse(*s[2])
    schedule.bind(thread, "threadIdx.x")
    schedule.annotate(partial, STRUCTURE, "SSSRRSRS")
    schedule.annotate(partial, "meta_schedule.thread_extent_low_inclusive", WARP)
    schedule.annotate(partial, "meta_schedule.thread_extent_high_inclusive", THREADS)
    made = schedule.cache_write(partial, 0, "local")
    schedule.reverse_compute_at(made, thread, preserve_unit_loops=True)
    for number in range(len(told.inputs)):
        fetched = schedule.cache_read(partial, number, "shared", [partial])
        schedule.compute_at(fetched, r[0][-1], preserve_unit_loops=True)
        dimensions = schedule.get_loops(fetched)[-told.inputs[number].dimensions :]
        schedule.fuse(*dimensions)
        schedule.annotate(fetched, "meta_schedule.cooperative_fetch", _choice(schedule, FETCHED))


# Blocks of TensorIR that add up, as a schedule finds them.


class Input(NamedTuple):
    """What a sum reads: its dimensions, its elements, and the last index where that is a variable."""

    dimensions: int
    elements: int
    last: Any


@dataclass(frozen=True)
class Sum:
    """A block that adds up, and reads some input for several elements of its output.

    Parameters
    ----------
    spatial, reduced : list of int
        Places of its loops.
    extents : list of int
        Of all loops.
    longest : int
        The place of the reduction loop that has most terms.
    inputs : list of Input
    names : list of Var
        The block's variables, one for each loop.
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
        """None for what is no such block, or is scheduled already."""
        schedule = schedule.copy()  # whose trace is not to tell of these questions
        stated = schedule.get(block)
        loops = [schedule.get(loop) for loop in schedule.get_loops(block)]
        variables = list(stated.iter_vars)
        kinds = [int(variable.iter_type) for variable in variables]
        spatial = [k for k, kind in enumerate(kinds) if kind == IterVar.DataPar]
        reduced = [k for k, kind in enumerate(kinds) if kind == IterVar.CommReduce]
        extents = numbers(loop.extent for loop in loops)
        same = extents is not None and extents == numbers(variable.dom.extent for variable in variables)
        fine = same and len(spatial) + len(reduced) == len(kinds)
        if not (
            extents and fine and reduced and spatial and len(stated.writes) == 1 and len(stated.reads) >= 2
        ):
            return None
        inputs, again = [], False
        for region in stated.reads:
            if region.source.same_as(stated.writes[0].source):
                continue
            shape = numbers(region.source.ty.shape)
            if shape is None:
                return None
            used = [var for index in region.region for var in undefined_vars(index.min)]
            again |= any(extents[k] > 1 and not _holds(used, variables[k].var) for k in spatial)
            last = region.region[-1].min if len(region.region) else None
            inputs.append(Input(len(shape), math.prod(shape), last if isinstance(last, Var) else None))
        if not again:  # nothing is read for several elements: MetaSchedule's rule for such sums is there
            return None
        longest = max((extents[k], -k) for k in reduced)
        return Sum(spatial, reduced, extents, -longest[1], inputs, [variable.var for variable in variables])


def _holds(variables: Sequence[Any], one: Any) -> bool:
    return any(each.same_as(one) for each in variables)


def numbers(extents: Iterable[Any]) -> list[int] | None:
    """None where one is not known before it runs."""
    found = [getattr(extent, "value", None) for extent in extents]
    known = [int(n) for n in found if n is not None]
    return known if len(known) == len(found) else None
