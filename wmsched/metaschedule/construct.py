"""Schedules constructed, not measured: the first choices of the search in the model, for each function.

A search that asks the model alone (`wmsched.metaschedule.search_strategy`) ranks thousands of schedules of a
function in a quarter of a second. Its first choice takes, in the mean, 1.1 to 1.5 times what the best of 64
measured ones does. Constructed schedules are ranked, never timed: they stand in records of their own, with
their rank in the place of seconds, and neither teach a model nor count as trials.

>>> found = construct(tasks, target, model)
>>> database = database_of(found)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord

from wmsched.metaschedule.defaults import strategy_of
from wmsched.metaschedule.task_scheduler import Search
from wmsched.metaschedule.tasks import Task
from wmsched.relax.passes.objects import FunctionFailed

__all__ = ["RANK_SECONDS", "Constructed", "construct", "database_of", "drop_failed", "is_constructed"]

logger = logging.getLogger("wmsched")

#: Seconds that a constructed record has, three years: no measured program takes so long, and all are faster.
#: Further ranks follow in steps of 1 %, so that readers, which take the least for the best, keep the order.
RANK_SECONDS = 1e8
RANK_STEP = 0.01


@dataclass
class Constructed:
    """Schedules of one task, the model's first choice first.

    Parameters
    ----------
    task : Task
    candidates : list of MeasureCandidate
        Empty where no space, or no schedule of it, is there: rules schedule the function then.
    why : str
        Why there are none; "" where there are.
    """

    task: Task
    candidates: list[Any] = field(default_factory=list)
    why: str = ""


def construct(
    tasks: Sequence[Task],
    target: Any,
    cost_model: Any,
    *,
    count: int = 1,
    seed: int = 1,
    strategy: Callable[[], Any] | None = None,
    done: Callable[[Task], None] = lambda task: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[Constructed]:
    """Return up to `count` schedules of each task, chosen by a cost model, without a measurement.

    Parameters
    ----------
    tasks : sequence of Task
    target : tvm.target.Target
    cost_model : WorldModelCostModel
        A frozen one.
    count : int
        Schedules of each task.
    strategy : callable () -> SearchStrategy, optional
        By default the search in the model, and TVM's with this model where a space is not known.
    done : callable (task), optional
        Called after each task.
    interrupted : callable (), optional
        Whether the user wants to leave: KeyboardInterrupt is raised then.
    """
    size = max(count, 2)  # a search of one candidate is no smaller
    search = Search(
        tasks,
        target,
        MemoryDatabase(),
        cost_model,
        None,  # type: ignore[arg-type]  # nothing is measured
        round_size=size,
        seed=seed,
        strategy=strategy or strategy_of(cost_model, size, target),
        interrupted=interrupted,
    )
    found = []
    for task in search.tasks:
        candidates, why = search.choose(task, size)
        found.append(Constructed(task, candidates[:count], why))
        done(task)
    return found


def database_of(found: Sequence[Constructed], target: Any) -> Any:
    """Return a database in memory with all constructed schedules, by rank (`RANK_SECONDS`)."""
    database = MemoryDatabase()
    for one in found:
        workload = database.commit_workload(one.task.mod)
        for rank, candidate in enumerate(one.candidates):
            seconds = [RANK_SECONDS * (1 + RANK_STEP * rank)]
            entry = TuningRecord(candidate.sch.trace, workload, seconds, target, candidate.args_info)
            database.commit_tuning_record(entry)
    return database


def is_constructed(record: Any) -> bool:
    """Whether a record's schedule was constructed and never measured."""
    return all(float(seconds) >= RANK_SECONDS for seconds in record.run_secs or ())


def drop_failed(
    found: Sequence[Constructed], functions: Mapping[str, Any], failed: FunctionFailed
) -> Constructed | None:
    """Drop the first choice of the task that a function which could not be compiled belongs to.

    Parameters
    ----------
    functions : mapping of str to tvm.IRModule
        Normalized programs of the prepared module, by the function's name.

    Returns
    -------
    Constructed or None
        Whose schedule was dropped; None where the function is no task's, or its task has none left.
    """
    names = [name for name in functions if failed.function.startswith(name)]
    if not names:
        return None
    mod = functions[max(names, key=len)]
    for one in found:
        if one.candidates and tvm_ffi.structural_equal(one.task.mod, mod):
            one.candidates.pop(0)
            one.why = "" if one.candidates else f"no schedule compiles ({failed})"
            return one
    return None
