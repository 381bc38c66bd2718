"""Schedules that nothing has measured, for a whole model: which functions get them, and which compile."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

from wmsched.base.cores import usable_cores
from wmsched.base.errors import WmschedError
from wmsched.metaschedule.construct import Constructed, construct, copy_record, database_of, drop_failed
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.defaults import STOCK, default_cost_model
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.tasks import Task, argument_bytes
from wmsched.metaschedule.workload import kind_of
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.objects import COMPILED_MAIN, FunctionFailed
from wmsched.schedules.database import RECORDS
from wmsched.tune import in_model_selection
from wmsched.tune.run import Run

__all__ = ["ByRule", "Compiled", "Schedules", "compilable", "construct_schedules", "measured_in"]

MAX_WORKERS = 16  # processes that construct, each with TVM and a model: some 300 MB
MAX_FAILURES = 50  # builds of a model whose functions fail to compile one after the other


@dataclass
class ByRule:
    """Functions that rules schedule: their names and rules, and those whose schedule does not compile."""

    rules: dict[str, str] = field(default_factory=dict)
    plain: set[str] = field(default_factory=set)

    def __call__(self, function: str, rule: str) -> bool:
        """Note the rule that took a function; whether it is to be applied."""
        if function in self.plain:
            return False
        self.rules[function] = rule
        return True


@dataclass
class Compiled:
    """Schedules with which every function of a model compiles, and the model compiled with them."""

    database: Any
    executable: Any
    _ahead: tuple[Future[None], Path] | None = None

    def link_ahead(self, executor: Executor, library: Path) -> None:
        """Begin to write the library beside what else is compiled; `link` then moves it."""
        made, self.executable = self.executable, None
        self._ahead = executor.submit(pipeline.link, made, library), library

    def link(self, library: Path) -> None:
        """Write the library, once; the executable, which holds the model's weights, is let go of."""
        if self._ahead is not None:
            (begun, path), self._ahead = self._ahead, None
            begun.result()
            os.replace(path, library)
            return
        made, self.executable = self.executable, None
        pipeline.link(made, library)


class Schedules:
    """Constructed schedules of a run, each function's constructed once for all its graphs and shapes."""

    def __init__(self) -> None:
        self._known: dict[int, Constructed] = {}

    def of(self, run: Run, tasks: Sequence[Task], *, neighbours: bool = False) -> list[Constructed]:
        """Return the schedules of some tasks; see `construct_schedules`."""
        keys = [tvm_ffi.structural_hash(task.mod) for task in tasks]
        fresh = {key: task for key, task in zip(keys, tasks) if key not in self._known}
        made = construct_schedules(run, list(fresh.values()), workers=usable_cores(), neighbours=neighbours)
        self._known.update(zip(fresh, made, strict=True))
        return [
            replace(self._known[key], task=task, records=list(self._known[key].records))
            for key, task in zip(keys, tasks, strict=True)
        ]


def construct_schedules(
    run: Run, tasks: Sequence[Task], *, workers: int = 1, neighbours: bool = False
) -> list[Constructed]:
    """Return the schedules that the options' cost model ranks first, for each of some tasks.

    Each task gets two at least: the second is for where the first does not compile. MetaSchedule's own models
    know nothing before a measurement; the shipped bundle chooses in their place. Tasks that differ in
    constants alone (`kind_of`) share theirs.

    Parameters
    ----------
    workers : int
        Copies of this process that share the tasks: more than one only where no search has run in it.
    neighbours : bool
        Whether tasks are of several shapes: one begins with the schedules of the nearest before it.
    """
    if not tasks:
        return []
    options, target = run.options, run.target
    import_intrinsics(target.tvm)
    name = options.cost_model
    if name is None or name in STOCK:
        name = default_cost_model(target.kind, run.tell)
    if name in STOCK:
        return [Constructed(task, why=f"no bundle for {target.kind}") for task in tasks]
    count = max(options.finalists, 2)
    kinds = _kinds(tasks, target.text)
    made = construct(
        [replace(like[0], weight=sum(task.weight for task in like)) for like in kinds],
        target.tvm,
        lambda: WorldModelCostModel(name, diversity=options.diversity, round_size=count),
        count=count,
        seed=options.seed or 1,
        traversal=options.traversal,
        choice=options.choice,
        neighbours=neighbours,
        workers=min(workers, MAX_WORKERS),
        interrupted=run.interrupted,
    )
    found = {id(task): of_like(one, task) for one, like in zip(made, kinds) for task in like}
    return [found[id(task)] for task in tasks]


def _kinds(tasks: Sequence[Task], target: str) -> list[list[Task]]:
    """Return the tasks, those of one kind together, in the order of the first of each."""
    sizes = [(task.flop, *argument_bytes(task.mod)) for task in tasks]
    often = {size for size, count in Counter(sizes).items() if count > 1}  # of others no text is written
    found: dict[Any, list[Task]] = {}
    for task, size in zip(tasks, sizes):
        found.setdefault(kind_of(task.mod, target) if size in often else size, []).append(task)
    return list(found.values())


def of_like(found: Constructed, task: Task) -> Constructed:
    """Return the schedules of a task for another one that differs in constants alone."""
    task.workload = Workload(task.mod)
    records = [
        TuningRecord(one.trace, task.workload, one.run_secs, one.target, one.args_info)
        for one in found.records
    ]
    return Constructed(task, records, found.why)


def measured_in(folder: Path) -> Any:
    """Database of a folder's measured records; None without any."""
    return in_model_selection.database_of(folder) if os.path.exists(folder / RECORDS) else None


def compilable(
    run: Run, prepared: Any, chosen: Sequence[Constructed], measured: Any, by_rule: ByRule
) -> Compiled:
    """Return the model compiled, with a database in memory of schedules with which every function compiles.

    A function that fails loses its constructed schedule for the next one, then for a rule's, then for none.

    Parameters
    ----------
    measured : Database or None
        Its records are taken over, and win where they are of the same function.

    Raises
    ------
    WmschedError
        A function fails whatever its schedule is, or more fail than `MAX_FAILURES`.
    """
    functions = in_model_selection.normalized_functions(prepared)
    for _ in range(MAX_FAILURES):
        database = database_of(chosen)
        for record in [] if measured is None else measured.get_all_tuning_records():
            copy_record(record, database)
        try:
            made = pipeline.compile_module(
                prepared,
                run.target.tvm,
                database,
                vector_math=run.settings["vector_math"],
                objects=run.objects if run.target.is_cpu else None,
                by_rule=by_rule,
            )
        except FunctionFailed as failed:
            why = str(failed.__cause__).strip()[-160:]
            objects = run.objects
            if objects is not None and objects.native_main and failed.function == COMPILED_MAIN:
                objects.native_main = False
                run.tell(f"the graph does not compile ({why}): the virtual machine's loop runs it")
            elif drop_failed(chosen, functions, failed) is not None:
                run.tell(f"{failed.function} does not compile ({why}): its next schedule is taken")
            elif failed.function not in by_rule.plain:
                by_rule.plain.add(failed.function)
                run.tell(f"{failed.function} does not compile ({why}): it stays plain loops")
            else:
                raise
        except WmschedError:
            raise
        except Exception as error:  # TVM's have no common base
            raise WmschedError(f"TVM cannot build the model: {str(error).strip()[-300:]}") from error
        else:
            return Compiled(database, made)
    raise WmschedError(f"{MAX_FAILURES} builds failed, each at another function")


def unmeasured(tasks: Sequence[Task]) -> list[Task]:
    """Tasks of which no candidate has run."""
    return [task for task in tasks if not math.isfinite(task.best)]
