"""``wmsched tune``: tune benchmark tasks, or tasks of a workload file, with AutoScheduler and the world
model."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from wmsched.backends.task_search import search
from wmsched.base.console import say
from wmsched.base.errors import LogError, WmschedError
from wmsched.base.files import locked
from wmsched.base.interrupt import Interrupt
from wmsched.live import Line, LiveTable
from wmsched.schedules.log_file import Tally, mend, other_target, tally
from wmsched.search.budget import ROUND, SMALL
from wmsched.tune_options import TuneOptions
from wmsched.tune_rows import label, rows_of

logger = logging.getLogger("wmsched")


@dataclass(frozen=True, kw_only=True)
class Best:
    """A task's best record in the log, of this run or of one before."""

    name: str
    seconds: float  # NaN: no candidate ran
    gflops: float
    trials: int


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
    rows = rows_of(options.name, options.workloads)
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
    from wmsched.toolchain.targets import measurable_target

    target = measurable_target(options.target)  # imports TVM
    from wmsched.ansor.compute_dag import task_from_row

    tasks = [task_from_row(row, target=target) for row in rows]
    keys = [(str(task.workload_key), str(task.target)) for task in tasks]
    _check_targets(options.log, earlier, keys)
    lines = {}
    for row, key, task in zip(rows, keys, tasks):
        held = earlier.best.get(key)
        line = Line(label(row), float(task.compute_dag.flop_ct), float(row.get("weight", 1)))
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
            search(
                options,
                [tasks[place] for place in chosen],
                [lines[keys[place][0]].weight for place in chosen],
                left,
                table,
                resumed=any(key in earlier.trials for key in keys),
                interrupt=interrupt,
            )
    else:
        say(console, f"{options.log} has its {trials} trials already")
    return _best(options.log, keys, lines)


def _check_targets(log: Path, earlier: Tally, keys: list[tuple[str, str]]) -> None:
    """LogError if the log has some of these tasks for another target only: TVM would take their schedules
    for measured, whatever they were measured on."""
    others = {key: target for key, target in earlier.trials}
    for key in keys:
        if key not in earlier.trials and key[0] in others:
            raise other_target(log, others[key[0]], key[1], option="--log")


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
        say(
            console,
            f"lines that are no records were moved to {path}.bad: {len(moved)}; the first: {moved[0]}",
        )
    return tally(path)


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
