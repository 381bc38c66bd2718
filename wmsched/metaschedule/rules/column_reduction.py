"""Spaces for reductions of a channels-last tensor on a CPU: vectors along the channels, which stay innermost.

A global average of an image, or a pooling window, reduces the outer dimensions and keeps the innermost one.
MetaSchedule's rules run the whole reduction for one channel after the other, so each step reads one number of
a cache line. This rule moves the reduced loops between two tiles of the channels. One space does that to the
whole reduction. Where an image has few rows of channels, another first splits it in two steps
(`Schedule.rfactor`), so that threads have parts of it. The rule's spaces stand in place of MetaSchedule's,
which are more than twice as slow at best on an average of 28 x 28 x 144
(`tests/meta/metaschedule/rules/test_column_reduction.py`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule

from wmsched.metaschedule.rules.block_loops import BlockLoops

__all__ = ["ColumnReduction"]

logger = logging.getLogger("wmsched")

TILING_KEY = "meta_schedule.tiling_structure"  # MetaSchedule's rules skip a block with this annotation
MAX_INNERMOST = 64  # as in MetaSchedule's rules
MIN_COLUMNS = 4  # of an SSE vector of float32
MAX_ROWS_IN_PARTS = 64  # with more rows of output, as in a pooling, each thread has many whole ones


@derived_object
class ColumnReduction(PyScheduleRule):
    """Schedule rule for reductions along outer dimensions, for MetaSchedule's `PostOrderApply`.

    >>> rules = [ColumnReduction(), *ms.ScheduleRule.create("llvm")]
    >>> space = ms.space_generator.PostOrderApply(sch_rules=rules)
    """

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, sch: Any, block: Any) -> list[Any]:
        loops = _Loops.of(sch, block)
        if loops is None:
            return [sch]
        found = []
        for make in (_whole, _in_parts) if loops.rows <= MAX_ROWS_IN_PARTS else (_whole,):
            one = sch.copy()
            try:
                make(one, block, loops)
            except Exception as error:  # a primitive does not apply; TVM's errors have no common base
                logger.debug("columns are not reduced so: %s", str(error)[-300:])
                continue
            found.append(one)
        return found or [sch]

    def clone(self) -> Any:
        return ColumnReduction()


class _Loops(NamedTuple):
    """Places of a block's loops: outer spatial ones, the columns (innermost in memory), and reduced ones.

    `rows` counts the output's rows of columns.
    """

    outer: list[int]
    columns: int
    reduced: list[int]
    rows: int

    @staticmethod
    def of(schedule: Any, block: Any) -> _Loops | None:
        """Return the loops of a reduction that keeps its only input's last dimension; None of others."""
        loops = BlockLoops.of(schedule, block)
        if loops is None or len(loops.stated.writes) != 1 or TILING_KEY in loops.stated.annotations:
            return None
        own = loops.stated.writes[0]
        inputs = [region.region for region in loops.stated.reads if not region.source.same_as(own.source)]
        if len(inputs) != 1 or not len(inputs[0]) or not len(own.region):
            return None
        last, (read,) = own.region[-1].min, inputs
        columns = [k for k in loops.spatial if loops.names[k].same_as(last)]
        if not columns or not read[-1].min.same_as(last) or loops.extents[columns[0]] < MIN_COLUMNS:
            return None
        if loops.is_read_again(read):
            return None  # MetaSchedule tiles it
        outer = [k for k in loops.spatial if k != columns[0]]
        return _Loops(outer, columns[0], loops.reduced, math.prod(loops.extents[k] for k in outer))


def _whole(schedule: Any, block: Any, loops: _Loops) -> None:
    """Reduce between two tiles of the columns."""
    own = schedule.get_loops(block)
    _tile(schedule, block, [own[k] for k in loops.outer], own[loops.columns], [own[k] for k in loops.reduced])


def _in_parts(schedule: Any, block: Any, loops: _Loops) -> None:
    """Reduce in parts, which threads share, and then the parts."""
    own = schedule.get_loops(block)
    outer, columns = [own[k] for k in loops.outer], own[loops.columns]
    reduced = [own[k] for k in loops.reduced]
    schedule.reorder(*outer, columns, *reduced)
    fused = schedule.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    part, _ = schedule.split(fused, schedule.sample_perfect_tile(fused, 2, MAX_INNERMOST))
    partial = schedule.rfactor(part, 0)
    kept = len(outer)
    own = schedule.get_loops(partial)
    _tile(schedule, partial, [own[kept + 1], *own[:kept]], own[kept], own[kept + 2 :])
    own = schedule.get_loops(block)
    _tile(schedule, block, own[:kept], own[kept], own[kept + 1 :])


def _tile(schedule: Any, block: Any, outer: Sequence[Any], columns: Any, reduced: Sequence[Any]) -> None:
    first, last = schedule.split(columns, schedule.sample_perfect_tile(columns, 2, MAX_INNERMOST))
    schedule.reorder(*outer, first, *reduced, last)
    schedule.annotate(block, TILING_KEY, "SRS")
