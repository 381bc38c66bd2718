"""Schedules by rule, for functions that neither a search nor a construction has one for: never plain loops.

The chain for a processor: TVM's dlight rules for matrix-vector products and reductions, then
:func:`parallel_vector`, which shares spatial loops among threads and runs their innermost part in vectors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tvm
from tvm.s_tir import Schedule, dlight

__all__ = ["apply_default_schedules", "is_scheduled", "parallel_vector"]

logger = logging.getLogger("wmsched")

SCHEDULED = "tirx.is_scheduled"
LANES = 16  # float32 numbers that one step of the innermost loop computes
SPATIAL, REDUCE = 0, 2  # TVM's numbers of the kinds of a block's iterators
CPU_RULES = (dlight.cpu.GEMV, dlight.cpu.Reduction)


def apply_default_schedules(report: Callable[[str, str], bool] | None = None) -> Any:
    """Return a module pass that schedules, by rule, each function of a processor that has no schedule.

    Parameters
    ----------
    report : callable (name, rule) -> bool, optional
        Receives each function's name and the rule that took it, "" where none did; whether to apply it.
    """

    @tvm.transform.module_pass(opt_level=0, name="DefaultSchedules")
    def apply(module: Any, _: Any) -> Any:
        target = tvm.target.Target.current(allow_none=False)
        found = module.clone()
        for variable, function in module.functions.items():
            if not isinstance(function, tvm.tirx.PrimFunc) or is_scheduled(function):
                continue
            scheduled, rule = _by_rule(function, target)
            wanted = report is None or report(str(variable.name_hint), rule)
            if scheduled is not None and wanted:
                found.update_func(variable, scheduled)
        return found

    return apply


def is_scheduled(function: Any) -> bool:
    """Whether a function has its schedule, so that no search, record or rule is to change it."""
    return bool(function.attrs is not None and function.attrs.get(SCHEDULED, 0))


def _by_rule(function: Any, target: Any) -> tuple[Any, str]:
    """Scheduled function and the name of the rule that took it; (None, "") where none does."""
    for rule in (*(kind() for kind in CPU_RULES), parallel_vector):
        try:
            schedule = rule(function) if rule is parallel_vector else rule.apply(function, target, False)
        except Exception as error:  # a rule that expects another kind of program; no common base
            logger.debug("%s does not take a function: %s", rule, str(error).strip()[-200:])
            continue
        if isinstance(schedule, list):
            schedule = schedule[0] if schedule else None
        if schedule is not None:
            name = "parallel_vector" if rule is parallel_vector else type(rule).__name__
            return schedule.mod["main"].with_attr(SCHEDULED, True), name
    return None, ""


def parallel_vector(function: Any) -> Any:
    """Return a schedule whose blocks run their spatial loops on all threads and, innermost, in vectors.

    A block that cannot be moved so far, such as one whose loops depend on each other, goes as far as it can.

    Returns
    -------
    tvm.s_tir.Schedule or None
        None for a function without blocks, such as a call of a library.
    """
    schedule = Schedule(tvm.IRModule({"main": function}))
    root = schedule.get_sblock("root", "main")
    blocks = schedule.get_child_blocks(root)
    if not blocks:
        return None
    for block in blocks:
        for step in (_vectors, _threads):
            copy = schedule.copy()
            try:
                step(copy, copy.get_sblock(schedule.get(block).name_hint, "main"))
            except Exception as error:  # TVM's, of a primitive that does not hold here
                logger.debug("%s is left: %s", step.__name__, str(error).strip()[-200:])
            else:
                schedule = copy
                break
    return schedule


def _kinds(schedule: Any, block: Any) -> list[int]:
    return [int(each.iter_type) for each in schedule.get(block).iter_vars]


def _vectors(schedule: Any, block: Any) -> None:
    """Fuse spatial loops, run blocks of `LANES` of them in vectors, and share the blocks among threads."""
    loops, kinds = schedule.get_loops(block), _kinds(schedule, block)
    if len(loops) != len(kinds) or set(kinds) - {SPATIAL, REDUCE}:
        raise ValueError("loops and iterators do not go together")
    spatial = [loop for loop, kind in zip(loops, kinds) if kind == SPATIAL]
    reduce = [loop for loop, kind in zip(loops, kinds) if kind == REDUCE]
    schedule.reorder(*spatial, *reduce)
    fused = schedule.fuse(*spatial)
    outer, inner = schedule.split(fused, [None, LANES])
    if reduce:
        schedule.reorder(outer, *reduce, inner)
        schedule.decompose_reduction(block, reduce[0])
    schedule.parallel(outer)
    schedule.vectorize(inner)


def _threads(schedule: Any, block: Any) -> None:
    """Share the outermost spatial loops among threads."""
    loops, kinds = schedule.get_loops(block), _kinds(schedule, block)
    leading = []
    for loop, kind in zip(loops, kinds):
        if kind != SPATIAL:
            break
        leading.append(loop)
    if not leading:
        raise ValueError("no spatial loop stands outside")
    schedule.parallel(schedule.fuse(*leading) if len(leading) > 1 else leading[0])
