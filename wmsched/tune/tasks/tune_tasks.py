"""Tuning run of ``wmsched tune`` for tasks, the benchmark's or a workload file's, with AutoScheduler."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from wmsched import zoo
from wmsched.base.console import say
from wmsched.base.errors import LogError, UnknownName, WmschedError
from wmsched.base.files import locked
from wmsched.base.interrupt import Interrupt
from wmsched.schedules.log_file import Tally, mend, other_target, tally
from wmsched.schedules.workload_file import load_rows
from wmsched.search.budget import MAX_ROUND, MIN_ROUND
from wmsched.tune.options import TuneOptions
from wmsched.tune.progress import Line, LiveTable
from wmsched.tune.tasks.search_tasks import search

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
        trials = max(MAX_ROUND, MIN_ROUND * len(rows))
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


# Which tasks ``wmsched tune NAME`` means: the benchmark's, or a workload file's.


def rows_of(name: str, workloads: Path | None = None) -> list[dict[str, Any]]:
    """The rows of the tasks called `name`, each task once, with the sum of its weights.

    Parameters
    ----------
    name : str
        A task, type or model of `wmsched.zoo`; with `workloads`, an id, description or network of that file,
        or "all".
    workloads : Path, optional
        An open JSON workload file.

    Raises
    ------
    UnknownName
        There are none.
    """
    if workloads is None:
        rows = zoo.find(name)
    else:
        every = load_rows(workloads)
        rows = [
            row
            for row in every
            if name in ("all", str(row.get("id")), row.get("desc"), row.get("network"), row.get("name"))
            or name in row.get("networks", ())
        ]
        rows = [row | {"weight": _weight(row, name)} for row in rows]
        if not rows:
            raise UnknownName(
                f"no row of {workloads} has the id, desc, network or name {name!r}; "
                f"its networks are {', '.join(sorted(_networks(every)))}"
            )
    merged: dict[str, dict[str, Any]] = {}
    for row in rows:  # the same task under two names is tuned once, for both
        if row["workload_key"] in merged:
            merged[row["workload_key"]]["weight"] += row.get("weight") or 1
        else:
            merged[row["workload_key"]] = {**row, "weight": row.get("weight") or 1}
    return list(merged.values())


def _weight(row: dict[str, Any], name: str) -> Any:
    """How often the task occurs in what is called so: in one of its networks, or in all."""
    networks = row.get("networks") or {}
    return networks.get(name) or sum(networks.values()) or row.get("weight")


def _networks(rows: list[dict[str, Any]]) -> set[str]:
    return {str(name) for row in rows for name in (row.get("network"), *row.get("networks", ()))}


def label(row: dict[str, Any]) -> str:
    """What the task of a row is called."""
    return str(
        row.get("name") or f"{row.get('network', '')}/{row.get('id', '')} {row.get('desc', '')}".strip(" /")
    )
