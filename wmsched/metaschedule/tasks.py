"""Tasks of a search: a program, its weight in the model, and its measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.analysis import estimate_tir_flops

from wmsched.base.errors import WmschedError
from wmsched.measure.roofline import Roofline
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.relax.passes.default_schedules import is_scheduled
from wmsched.relax.passes.pipeline import _static, logger
from wmsched.schedules.database import mean, schedule_key
from wmsched.schedules.traces import steps_of
from wmsched.search.sharing import Progress

FAILED_SECONDS = 1e10  # MetaSchedule's time for a program that failed


class NothingToTune(WmschedError):
    """A model whose functions all have one schedule, are views or library calls, or have symbolic shapes."""


@dataclass
class Task(Progress):
    """Program to tune, and its measurements.

    Parameters
    ----------
    name : str
        Name of its function in the model.
    mod : tvm.IRModule
        Normalized: its function is ``main``.
    weight : int
        How often the model calls it.
    """

    name: str
    mod: Any
    weight: int = 1
    flop: float = 0.0
    known: set[bytes] = field(default_factory=set)  # keys of the measured schedules
    context: Any = None
    prepared: int = 0  # how often its search has begun
    workload: Any = None


def set_bounds(tasks: Sequence[Task], machine: Roofline) -> None:
    """Set what each task may plausibly take on a machine."""
    for task in tasks:
        sizes = argument_bytes(task.mod)
        task.floor, task.ceiling = machine.plausible(task.flop, sum(sizes), sizes[-1])


def argument_bytes(mod: Any) -> list[int]:
    """Return the bytes of each argument of a program, the outputs last."""
    return [
        math.prod(int(extent) for extent in argument.shape) * tvm.DataType(argument.dtype).itemsize
        for argument in ms.arg_info.ArgInfo.from_prim_func(mod["main"])
    ]


def load_history(tasks: Sequence[Task], database: Any) -> None:
    """Add the database's records to their tasks."""
    for task in tasks:
        task.workload = database.commit_workload(task.mod)
    for record in database.get_all_tuning_records():
        for task in tasks:
            if record.workload.same_as(task.workload):
                task.known.add(schedule_key(steps_of(trace_json(record.trace))))
                task.take(mean(record.run_secs or ()))
                break


def tasks(prepared: Any, target: Any, equality: str = "structural") -> list[Task]:
    """Return the tunable functions of a prepared module, those with most operations first.

    Reshapes (Relax makes them views), symbolic shapes, functions that have a schedule, and those whose
    operations TVM cannot count, as a library call for sorting, are no tasks. `equality` is MetaSchedule's
    test of equal tasks.

    Raises
    ------
    NothingToTune
        There is none.
    """
    found = []
    for extracted in ms.relax_integration.extract_tasks(prepared, target, module_equality=equality):
        mod = extracted.dispatched[0]
        function = mod["main"]
        if is_scheduled(function) or not _static(function) or relax.analysis.has_reshape_pattern(function):
            continue
        try:
            flop = float(estimate_tir_flops(mod))
        except Exception as error:  # TVM cannot count library calls, such as sorting
            logger.info(
                "%s is left as it is: TVM cannot count it (%s)", extracted.task_name, str(error)[-200:]
            )
            continue
        found.append(Task(str(extracted.task_name), mod, int(extracted.weight), flop))
    if not found:
        functions = sum(isinstance(function, tvm.tirx.PrimFunc) for function in prepared.functions.values())
        raise NothingToTune(
            f"the model has no tunable task: of its {functions} functions in TensorIR all have "
            "one schedule, are views of a tensor or have symbolic shapes; a search can improve nothing"
        )
    return sorted(found, key=lambda task: (-task.weight * task.flop, task.name))


def tasks_if_any(module: Any, target: Any) -> list[Task]:
    """Return `tasks`, or none where all functions are views, or have open shapes."""
    try:
        return tasks(module, target)
    except NothingToTune:
        return []


def without_schedules(found: Sequence[Task], target: Any) -> list[Task]:
    """Return the tasks for which MetaSchedule has no schedules; they would stay plain loop nests."""
    return [task for task in found if not _has_space(task, target)]


def unscheduled_work(found: Sequence[Task], target: Any) -> float:
    """Return the operations of all calls of the tasks for which MetaSchedule has no schedules."""
    return sum(task.weight * task.flop for task in without_schedules(found, target))


def _has_space(task: Task, target: Any) -> bool:
    try:
        context = ms.TuneContext(
            task.mod,
            target=target,
            space_generator="post-order-apply",
            search_strategy=ms.search_strategy.EvolutionarySearch(),
            num_threads=1,
        )
        return bool(len(context.generate_design_space()))
    except Exception as error:  # a rule does not support the program; TVM's errors have no common base
        logger.info("%s has no schedules: %s", task.name, str(error).strip()[-300:])
        return False
