"""Tasks of a search: a program, its weight in the model, and what was measured of it."""

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
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.relax.passes.pipeline import _static, logger
from wmsched.schedules.database import mean, schedule_key
from wmsched.schedules.traces import steps_of

ALPHA, WINDOW = 0.2, 3  # MetaSchedule's: how much the last rounds' gain counts, and how many they are
FEW = 16  # candidates that may all fail before a task is left to its gradient, which is 0
FAILED = 1e10  # what MetaSchedule writes for a program without a time


@dataclass
class Task:
    """A program that is tuned, and what is known about it.

    Parameters
    ----------
    name : str
        Of its function.
    mod : tvm.IRModule
        Normalized: its function is ``main``.
    weight : int
        How often the model calls it.
    """

    name: str
    mod: Any
    weight: int = 1
    flop: float = 0.0
    known: set[bytes] = field(default_factory=set)  # keys of the schedules that are measured
    trials: int = 0
    failed: int = 0
    best: float = math.inf  # seconds
    rounds: list[float] = field(default_factory=list)  # the best after each round
    finished: bool = False
    context: Any = None
    workload: Any = None

    def take(self, seconds: float) -> None:
        """Count a measurement; NaN for a failed one."""
        self.trials += 1
        self.failed += math.isnan(seconds)
        self.best = min(self.best, seconds if seconds > 0 else math.inf)

    @property
    def gradient(self) -> float:
        """Seconds of the whole model that a further round may save, as MetaSchedule estimates it."""
        if not self.rounds or not math.isfinite(self.best):
            return 0.0
        n = len(self.rounds)
        gain = (self.rounds[n - 1 - WINDOW] - self.best) / WINDOW if n > WINDOW else 0.0
        gain = gain if math.isfinite(gain) else 0.0
        return self.weight * (ALPHA * gain + (1 - ALPHA) * self.best / n)


def load_history(tasks: Sequence[Task], database: Any) -> None:
    """Give each task what the database has of it."""
    for task in tasks:
        task.workload = database.commit_workload(task.mod)
    for record in database.get_all_tuning_records():
        for task in tasks:
            if record.workload.same_as(task.workload):
                task.known.add(schedule_key(steps_of(trace_json(record.trace))))
                task.take(mean(record.run_secs or ()))
                break


def _urgency(task: Task) -> tuple[float, int]:
    """By gradient; tasks of which nothing has run yet in turn."""
    return task.gradient, -len(task.rounds)


def tasks(prepared: Any, target: Any, equality: str = "structural") -> list[Task]:
    """The tunable functions of a prepared module, those with most operations first.

    Left out are functions that only change a tensor's shape, which Relax makes views of, and those with
    symbolic shapes, and what TVM cannot count the operations of: sorting, which is a call of a library.
    Which functions are one task is for MetaSchedule's `equality` to say.

    Raises
    ------
    WmschedError
        There is none.
    """
    found = []
    for extracted in ms.relax_integration.extract_tasks(prepared, target, module_equality=equality):
        mod = extracted.dispatched[0]
        function = mod["main"]
        if relax.analysis.has_reshape_pattern(function) or not _static(function):
            continue
        try:
            flop = float(estimate_tir_flops(mod))
        except Exception as error:  # TVM's: calls of a library, as sorting makes them, have no count
            logger.info(
                "%s is left as it is: TVM cannot count it (%s)", extracted.task_name, str(error)[-200:]
            )
            continue
        found.append(Task(str(extracted.task_name), mod, int(extracted.weight), flop))
    if not found:
        functions = sum(isinstance(function, tvm.tirx.PrimFunc) for function in prepared.functions.values())
        raise WmschedError(
            f"the model has no tunable task: of its {functions} functions in TensorIR all are views of a "
            "tensor or have symbolic shapes; there is nothing for a search to improve"
        )
    return sorted(found, key=lambda task: (-task.weight * task.flop, task.name))


def without_schedules(found: list[Task], target: Any) -> list[Task]:
    """The tasks for which MetaSchedule has no schedules: they would stay a plain nest of loops."""
    return [task for task in found if not _has_space(task, target)]


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
    except Exception as error:  # of a rule that does not expect such a program; there is no common base
        logger.info("%s has no schedules: %s", task.name, str(error).strip()[-300:])
        return False
