"""Search of ``wmsched tune`` for tasks, by AutoScheduler, round by round."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np

from wmsched.base.cores import usable_cores
from wmsched.base.errors import WmschedError
from wmsched.base.interrupt import Interrupt
from wmsched.model.bundles import default_bundle
from wmsched.schedules.log_file import GrowingLog
from wmsched.search.budget import MAX_ROUND, round_size
from wmsched.toolchain.resolve import autoscheduler_tvm, is_cpu
from wmsched.tune.options import STOCK, TuneOptions
from wmsched.tune.progress import LiveTable

logger = logging.getLogger("wmsched")

MANY = 1 << 30  # trials of a run that time ends


class _TimeIsUp(Exception):
    """Ends a search between two rounds."""


class _Following:
    """A TaskScheduler callback: tells which task is being searched, sees after each round that its records
    are in the log, and stops between rounds."""

    def __init__(self, table: LiveTable, interrupt: Interrupt, log: GrowingLog, told: Any) -> None:
        self.table = table
        self.interrupt = interrupt
        self.log = log
        self.told = told

    def pre_tune(self, scheduler: Any, task_id: int) -> None:
        self.table.started(scheduler.tasks[task_id].workload_key)

    def corrected(self, scheduler: Any, task_id: int) -> None:
        self.log.rewritten()
        self.table.corrected(scheduler.tasks[task_id].workload_key, float(scheduler.best_costs[task_id]))

    def post_tune(self, scheduler: Any, task_id: int) -> None:
        self.log.check(self.told.trials)
        if self.interrupt.pressed:
            raise KeyboardInterrupt
        if self.table.until is not None and self.table.clock() >= self.table.until:
            raise _TimeIsUp


def search(
    options: TuneOptions,
    tasks: list[Any],
    weights: list[float],
    trials: int | None,
    table: LiveTable,
    *,
    resumed: bool,
    interrupt: Interrupt,
) -> None:
    """Measure until the trials or the time of the options are used up.

    Parameters
    ----------
    tasks : list of SearchTask
    weights : list of float
        How often each occurs.
    trials : int, optional
        Of this run; None where time ends it.
    table : LiveTable
        Its `until` is when the search ends.
    resumed : bool
        Whether the log has some of these tasks' records.

    Raises
    ------
    WmschedError
        Nothing could be measured, or the log does not grow.
    """
    from wmsched.ansor.callbacks import MeasureProgress
    from wmsched.ansor.task_scheduler import TaskScheduler, WorldModelCostModel
    from wmsched.search.failure_budget import TooManyFailed

    auto_scheduler = autoscheduler_tvm().auto_scheduler
    cpu = is_cpu(tasks[0].target)
    share = (
        MAX_ROUND if trials is None else max(1, trials // len(tasks))
    )  # by time: as many a task as is usual
    size = round_size(share, options.rounds)
    if options.seed is not None:  # TVM's own models draw from these
        random.seed(options.seed)
        np.random.seed(options.seed)
    model: Any
    name = options.cost_model or default_bundle(str(tasks[0].target))
    if name == "random":
        model = auto_scheduler.RandomModel()
    elif name in STOCK:
        model = auto_scheduler.XGBModel(num_warmup_sample=len(tasks) * size)  # as upstream makes it
    else:
        model = WorldModelCostModel(name, online=options.online, diversity=options.diversity)
    progress = MeasureProgress(table.measured)
    scheduler = TaskScheduler(
        tasks,
        weights,
        load_log_file=str(options.log) if resumed else None,
        callbacks=[_Following(table, interrupt, GrowingLog(options.log), progress)],
        cost_model=model,
        seed=options.seed,
        places=options.places if cpu else 1,
        rounds=options.rounds,
        vector_math=options.vector_math and cpu,
    )
    how = auto_scheduler.TuningOptions(
        num_measure_trials=MANY if trials is None else trials,
        num_measures_per_round=size,
        builder=auto_scheduler.LocalBuilder(timeout=options.timeout, n_parallel=usable_cores()),
        runner=auto_scheduler.LocalRunner(
            timeout=options.timeout,
            number=1,
            repeat=1,
            min_repeat_ms=options.min_repeat_ms,
            enable_cpu_cache_flush=cpu,  # with it a timing is a call
        ),
        measure_callbacks=[auto_scheduler.RecordToFile(str(options.log)), progress],
        verbose=0,
    )
    try:
        scheduler.tune(how)
    except _TimeIsUp:
        pass
    except Exception as error:  # TVM gives up after many failures in a row, without a word of their cause
        ours = isinstance(error, WmschedError) and not isinstance(error, TooManyFailed)
        if ours or progress.failed < progress.trials or not progress.trials:
            raise
        raise _nothing_measured(progress, options.log) from error
    if progress.trials and progress.failed == progress.trials:
        nothing = _nothing_measured(progress, options.log)
        if not resumed:
            raise nothing
        logger.warning("%s", nothing)  # an earlier run has found something
    for kind, count in getattr(model, "problems", {}).items():
        logger.warning("wmsched: %s (%d times)", kind, count)


def _nothing_measured(progress: Any, log: Path) -> WmschedError:
    return WmschedError(
        f"none of {progress.trials} candidates could be measured; the first: {progress.reason[-600:]}\n"
        f"They count as tried in {log}: give another --log once that is mended"
    )
