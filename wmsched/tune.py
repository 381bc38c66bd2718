"""``wmsched tune``: tune benchmark tasks, or tasks of a workload file, with AutoScheduler and the world
model."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from wmsched import zoo
from wmsched.backends.placements import PLACES
from wmsched.cores import usable_cores
from wmsched.errors import LogError, UnknownName, WmschedError
from wmsched.interrupt import Interrupt
from wmsched.live import Line, LiveTable
from wmsched.locks import locked
from wmsched.resolve import autoscheduler_tvm, is_cpu
from wmsched.rounds import ROUND, SMALL, round_size
from wmsched.steady import steady_buffers
from wmsched.tuning_log import GrowingLog, Tally, mend, other_target, tally

logger = logging.getLogger("wmsched")

DEFAULT_BUNDLE = "x86-avx512"
DIVERSITY = 1.0
MANY = 1 << 30  # trials of a run that time ends
STOCK = ("ansor", "xgb", "random")  # AutoScheduler's own: one by two names, the benchmark's and TVM's


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """One tuning run.

    Parameters
    ----------
    name : str
        A task, type or model of `wmsched.zoo`; with `workloads`, an id, description or network of that file.
    trials : int, optional
        Measurements in all, those of an earlier run that is resumed included. Without it and without
        `minutes` sixteen for each task, 64 at least.
    minutes : float, optional
        Of this run's search; it ends after the round in which they are over.
    log : Path
        Where records are appended, in AutoScheduler's own format.
    cost_model : str
        A bundle's name or folder, or "ansor" (also "xgb") or "random" for AutoScheduler's own.
    resume : bool
        Go on with the records already in `log`.
    online : bool
        Let the world model learn from this run's measurements.
    rounds : int, optional
        Spread each task's share over this many rounds of search; by default as `wmsched.rounds` says.
    diversity : float
        See `WorldModelCostModel`.
    target : str, optional
        By default this machine's (`host_target`).
    workloads : Path, optional
        An open JSON workload file instead of the zoo.
    seed : int, optional
        Of the search; by default a new one each time.
    min_repeat_ms, timeout : int
        Each candidate is timed for at least so long on a GPU, and by calls with flushed caches on a CPU; a
        build or a run is given up after `timeout` seconds.
    places : int
        On a CPU a candidate is timed on so many sets of buffers, and where these are several, on each by the
        median of a few calls (`wmsched.backends.placements`); by TVM on 1, by one call.
    vector_math : bool
        Whether candidates have exp, tanh and the like in vectors on a CPU (`wmsched.backends.ansor_math`),
        more of their loops too, and prefetches (`wmsched.backends.lowering`);
        whoever builds the best of them in the end should say the same.
    """

    name: str
    log: Path
    trials: int | None = None
    minutes: float | None = None
    cost_model: str = DEFAULT_BUNDLE
    resume: bool = False
    online: bool = False
    rounds: int | None = None
    diversity: float = DIVERSITY
    target: str | None = None
    workloads: Path | None = None
    seed: int | None = None
    min_repeat_ms: int = 60
    timeout: int = 15
    places: int = PLACES
    vector_math: bool = True


@dataclass(frozen=True, kw_only=True)
class Best:
    """A task's best record in the log, of this run or of one before."""

    name: str
    seconds: float  # NaN: no candidate ran
    gflops: float
    trials: int


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

    def post_tune(self, scheduler: Any, task_id: int) -> None:
        self.log.check(self.told.trials)
        if self.interrupt.pressed:
            raise KeyboardInterrupt
        if self.table.until is not None and self.table.clock() >= self.table.until:
            raise _TimeIsUp


def tune(options: TuneOptions, *, console: Console | None = None) -> list[Best]:
    """Carry out the run; the log is complete up to the last batch at every moment.

    Returns
    -------
    best : list of Best
        One for each task.

    Raises
    ------
    UnknownName
        If `name` is nothing that can be tuned.
    LogError
        If the log exists and `resume` was not asked for, holds these tasks for another target, or cannot be
        written.
    EnvironmentProblem
        If there is no TVM with AutoScheduler, no compiler to link with, or no device for the target.
    WmschedError
        If there are fewer trials than tasks, another run is writing the log, or nothing could be measured.
    """
    console = console or Console()
    rows = _rows(options)
    log = options.log.resolve()  # of a link what it leads to: mending replaces the file
    with locked(log.with_name(f".{log.name}.lock"), whose=options.log, option="--log"):
        return _tune(options, rows, console)


def _tune(options: TuneOptions, rows: list[dict[str, Any]], console: Console) -> list[Best]:
    earlier = _open_log(options, console)
    trials = options.trials
    if trials is None and options.minutes is None:
        trials = max(ROUND, SMALL * len(rows))
    if trials is not None and trials < len(rows):
        raise WmschedError(
            f"{trials} trials are too few for the {len(rows)} tasks of {options.name!r}, "
            f"each of which needs one: --trials {len(rows)} or more"
        )
    from wmsched.backends.machine import measurable_target

    target = measurable_target(options.target)  # imports TVM
    from wmsched.backends.workload import task_from_row

    tasks = [task_from_row(row, target=target) for row in rows]
    keys = [(str(task.workload_key), str(task.target)) for task in tasks]
    _check_targets(options.log, earlier, keys)
    lines = {}
    for row, key, task in zip(rows, keys, tasks):
        held = earlier.best.get(key)
        line = Line(_label(row), float(task.compute_dag.flop_ct), float(row.get("weight", 1)))
        line.trials = earlier.trials.get(key, 0)
        line.best = held.measurement.seconds if held else line.best
        lines[key[0]] = line
    done = sum(earlier.trials.get(key, 0) for key in keys)
    left = None if trials is None else trials - done
    if left is None or left > 0:
        # A rest smaller than the number of tasks goes to those that have had least.
        least = sorted(range(len(tasks)), key=lambda place: earlier.trials.get(keys[place], 0))
        chosen = sorted(least[:left])
        until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
        with LiveTable(lines, left, console, until=until) as table, Interrupt() as interrupt:
            _search(
                options,
                [tasks[place] for place in chosen],
                [lines[keys[place][0]].weight for place in chosen],
                left,
                table,
                resumed=any(key in earlier.trials for key in keys),
                interrupt=interrupt,
            )
    else:
        console.print(
            f"{options.log} has its {trials} trials already", highlight=False, markup=False, soft_wrap=True
        )
    return _best(options.log, keys, lines)


def _search(
    options: TuneOptions,
    tasks: list[Any],
    weights: list[float],
    trials: int | None,
    table: LiveTable,
    *,
    resumed: bool,
    interrupt: Interrupt,
) -> None:
    from wmsched.backends.auto_scheduler import TaskScheduler, WorldModelCostModel
    from wmsched.backends.progress import MeasureProgress

    auto_scheduler = autoscheduler_tvm().auto_scheduler
    cpu = is_cpu(tasks[0].target)
    share = ROUND if trials is None else max(1, trials // len(tasks))  # by time: as many a task as is usual
    size = round_size(share, options.rounds)
    if options.seed is not None:  # TVM's own models draw from these
        random.seed(options.seed)
        np.random.seed(options.seed)
    model: Any
    if options.cost_model == "random":
        model = auto_scheduler.RandomModel()
    elif options.cost_model in STOCK:
        model = auto_scheduler.XGBModel(num_warmup_sample=len(tasks) * size)  # as upstream makes it
    else:
        model = WorldModelCostModel(options.cost_model, online=options.online, diversity=options.diversity)
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
        with steady_buffers():
            scheduler.tune(how)
    except _TimeIsUp:
        pass
    except Exception as error:  # TVM gives up after many failures in a row, without a word of their cause
        if isinstance(error, WmschedError) or progress.failed < progress.trials or not progress.trials:
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


def _check_targets(log: Path, earlier: Tally, keys: list[tuple[str, str]]) -> None:
    """LogError if the log has some of these tasks for another target only: TVM would take their schedules
    for measured, whatever they were measured on."""
    others = {key: target for key, target in earlier.trials}
    for key in keys:
        if key not in earlier.trials and key[0] in others:
            raise other_target(log, others[key[0]], key[1], option="--log")


def _rows(options: TuneOptions) -> list[dict[str, Any]]:
    if options.workloads is None:
        rows = zoo.find(options.name)
    else:
        from wmsched.backends.workload import load_rows

        every = load_rows(options.workloads)
        rows = [
            row
            for row in every
            if options.name
            in ("all", str(row.get("id")), row.get("desc"), row.get("network"), row.get("name"))
        ]
        if not rows:
            raise UnknownName(
                f"no row of {options.workloads} has the id, desc, network or name {options.name!r}; "
                f"its networks are {', '.join(sorted({str(row.get('network')) for row in every}))}"
            )
    merged: dict[str, dict[str, Any]] = {}
    for row in rows:  # the same task under two names is tuned once, for both
        if row["workload_key"] in merged:
            merged[row["workload_key"]]["weight"] += row.get("weight") or 1
        else:
            merged[row["workload_key"]] = {**row, "weight": row.get("weight") or 1}
    return list(merged.values())


def _open_log(options: TuneOptions, console: Console) -> Tally:
    path = options.log
    try:
        path.open("ab").close()  # TVM appends to it, and does not say when it cannot
    except OSError as error:
        raise LogError(
            f"the log cannot be written ({error.strerror}): give another --log", place=str(path)
        ) from error
    if path.stat().st_size == 0:
        return Tally()
    if not options.resume:
        raise LogError(
            f"{tally(path).total} records are in it already: --resume keeps them, or give another --log",
            place=str(path),
        )
    moved = mend(path)
    if moved:
        console.print(
            f"lines that are no records were moved to {path}.bad: {len(moved)}; the first: {moved[0]}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    return tally(path)


def _label(row: dict[str, Any]) -> str:
    return str(
        row.get("name") or f"{row.get('network', '')}/{row.get('id', '')} {row.get('desc', '')}".strip(" /")
    )


def _best(log: Path, keys: list[tuple[str, str]], lines: dict[str, Line]) -> list[Best]:
    told = tally(log)
    if told.bad:
        logger.warning("%d lines of %s are no records; the first: %s", len(told.bad), log, told.bad[0])
    found = []
    for key in keys:
        record, line = told.best.get(key), lines[key[0]]
        seconds = record.measurement.seconds if record else float("nan")
        found.append(
            Best(
                name=line.name,
                seconds=seconds,
                gflops=line.flop_ct / seconds / 1e9,
                trials=told.trials.get(key, 0),
            )
        )
    return found
