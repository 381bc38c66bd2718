"""Search of ``wmsched tune MODEL``: cost model, number of trials, table of tasks."""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

from wmsched.base.cores import requested_threads, usable_cores
from wmsched.schedules import database as meta_database
from wmsched.schedules.log_file import GrowingLog
from wmsched.tune.options import ModelOptions
from wmsched.tune.progress import Line, LiveTable
from wmsched.tune.run import Run

logger = logging.getLogger("wmsched")

TRIALS_A_TASK = 16
ROOFLINE_TRIES = 3  # half a second: bounds of plausible times are wide


def search(
    run: Run,
    tasks: list[Any],
    database: Any,
    console: Console,
    *,
    measurer: Any,
    strategy: Callable[[], Any] | None,
    neighbours: bool = False,
) -> Any:
    """Measure until the trials or the time are used up; return the database, another one if it was corrected.

    Parameters
    ----------
    tasks : list of Task
        Of the prepared model, with what `database` has of each.
    measurer, strategy
        As for `tune_model`.
    neighbours : bool
        Whether a task's search begins with the best schedules of the nearest measured one, which differs in
        extents alone (`wmsched.metaschedule.neighbours`).
    """
    from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

    from wmsched.measure import roofline
    from wmsched.metaschedule.defaults import STOCK, round_of, strategy_of
    from wmsched.metaschedule.intrinsics import import_intrinsics
    from wmsched.metaschedule.measure.measurer import Believed, Measurer
    from wmsched.metaschedule.neighbours import Neighbours
    from wmsched.metaschedule.task_scheduler import Search
    from wmsched.metaschedule.tasks import set_bounds
    from wmsched.tune.in_model_selection import database_of

    options, target, tell = run.options, run.target.tvm, run.tell
    trials = options.trials
    if trials is None and options.minutes is None:
        trials = TRIALS_A_TASK * len(tasks)
    left = None if trials is None else trials - len(database)
    share = TRIALS_A_TASK if trials is None else max(1, trials // len(tasks))
    size = round_of(share, 1 if run.devices is None else len(run.devices.fleet.names()))
    if left is not None and left <= 0:
        tell(f"{options.out} has its {trials} trials already")
        return database
    if trials is not None and trials < len(tasks):
        tell(f"{trials} trials are for the {trials} of {len(tasks)} tasks with most operations, one for each")
    seed = options.seed or random.randrange(1, 1 << 31)
    import_intrinsics(target)
    cost_model, what, learns = _cost_model(options, target, size, seed, tell)
    tell(f"{options.name}: {len(tasks)} tasks; cost model {what}")
    lines = {task.name: Line(task.name, task.flop, task.weight) for task in tasks}
    until = math.inf
    if measurer is None:
        # tries its workers out, which takes seconds: before the time counts
        machine = Measurer(
            target,
            timeout=options.timeout,
            min_repeat_ms=0 if run.settings["cold_caches"] else options.min_repeat_ms,
            places=options.places,
            vector_math=run.settings["vector_math"],
            devices=run.devices,
            revises=True,
        )
        if run.target.is_cpu and run.devices is None:
            set_bounds(tasks, roofline.measure(requested_threads(os.environ), tries=ROOFLINE_TRIES))
        machine.interrupted = run.interrupted
        measurer = Believed(machine, lambda: time.monotonic() >= until)
    until = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    # the database is another object once it was corrected
    seeds = Neighbours(tasks, lambda: searching.database) if neighbours else None
    with LiveTable(lines, left, console, until=until if options.minutes else None) as table:
        searching = Search(
            tasks,
            target,
            database,
            cost_model,
            measurer,
            round_size=size,
            seed=seed,
            learns=learns,
            strategy=strategy
            or (EvolutionarySearch if what in STOCK else strategy_of(cost_model, size, target, seeds=seeds)),
            started=lambda task: table.started(task.name),
            measured=lambda task, seconds: table.measured(task.name, seconds),
            note=tell,
            interrupted=run.interrupted,
            log=GrowingLog(options.out / meta_database.RECORDS),
            reopen=lambda: database_of(options.out),
            corrected=lambda task: table.corrected(task.name, task.best),
        )
        for task in tasks:  # what an earlier run measured
            line = lines[task.name]
            line.trials, line.failed, line.best = task.trials, task.failed, task.best
        searching.run(left if left is not None else 1 << 30, lambda: time.monotonic() >= until, until=until)
    for kind, count in getattr(cost_model, "problems", {}).items():
        logger.warning("wmsched: %s (%d times)", kind, count)
    return searching.database


def _cost_model(
    options: ModelOptions, target: Any, size: int, seed: int, tell: Callable[[str], None]
) -> tuple[Any, str, bool]:
    """The model, what it is called, and whether it learns."""
    from tvm.s_tir import meta_schedule as ms

    from wmsched.metaschedule.cost_model import WorldModelCostModel
    from wmsched.metaschedule.defaults import default_cost_model

    name = options.cost_model or default_cost_model(str(target.kind.name), tell)
    if name == "random":
        return ms.cost_model.RandomModel(seed=seed), name, False
    if name == "xgb":
        model = ms.cost_model.CostModel.create("xgb", num_tuning_cores=usable_cores(), tree_method="auto")
        return model, name, True
    ours = WorldModelCostModel(name, online=options.online, diversity=options.diversity, round_size=size)
    return ours, name, options.online
