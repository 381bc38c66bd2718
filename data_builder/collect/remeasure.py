"""`wmsched-data remeasure`: time the best schedules of logs again, and write logs of the better times.

A record of a busy machine, or of a single call, says little about which of two good schedules is the faster,
and that is what a ranker is to learn. Each new log has the records of the old one in their order: the fastest
timed anew, here and now, the others as they were. A new log is only ever appended to, so a run that was
killed at any moment goes on. What a noise check has said of the old records goes with them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from data_builder.base.replay import task_of
from data_builder.base.store import locked
from data_builder.collect.collect import WORKLOADS, Watch
from data_builder.collect.measure import Believed, MeasureOptions, Measurer
from data_builder.collect.noise import reference
from data_builder.collect.round_robin import REFUSALS, Interruptible, take_turns
from data_builder.read.log_paths import MEASURED
from data_builder.read.log_reader import LogReader
from data_builder.read.noise_checks import beside, carry
from data_builder.read.tasks import Row
from data_builder.read.workloads import every_row, write_rows
from wmsched.ansor.runner import several_places
from wmsched.ansor.workers import kept_workers
from wmsched.base.errors import DatasetError, LogError
from wmsched.schedules.log_file import mend, other_target
from wmsched.schedules.steps import parse_record
from wmsched.schedules.types import ERROR_KINDS
from wmsched.toolchain.resolve import autoscheduler_tvm, host_target
from wmsched.toolchain.targets import measurable_target

ENDINGS = (".json", ".json.gz")


@dataclass(frozen=True, kw_only=True)
class RemeasureOptions:
    """What is timed again.

    Attributes
    ----------
    share : float
        Of each log's timed records, the fastest; in (0, 1].
    minutes : float
        No batch is begun after so long; 0 for no limit. Tasks take turns.
    batch : int
        Schedules of a task at a turn.
    target : str
        What they are timed for; "" for this machine's.
    keep : bool
        A record that fails now keeps the time it had; else it is recorded as failed.
    """

    share: float = 1.0
    minutes: float = 0.0
    batch: int = 16
    target: str = ""
    keep: bool = True
    measure: MeasureOptions = field(default_factory=MeasureOptions)


def remeasure(source: Path, out: Path, options: RemeasureOptions, watch: Watch) -> dict[str, int]:
    """Time until all that are chosen have new times, or time is up.

    Parameters
    ----------
    source, out : Path
        Folders as `collect` makes them: `measure_records/`, whose logs may be gzipped in `source`, and
        `workloads.json.gz`, which names them with or without their .gz. `out` gets new ones.

    Returns
    -------
    dict
        Counts: `tasks`, `records` in the new logs, `measured` in this run, `failed` of these (they keep the
        time they had), `unfinished` tasks.

    Raises
    ------
    DatasetError
        As `logs_of` says of `source`; `out` is `source`, or its logs are not the beginnings of these.
    LogError
        A line of a log is no record, or one of another workload than its file is of, or for another target.
    EnvironmentProblem
        No TVM with AutoScheduler, no device for the target, or nothing can be measured.
    """
    autoscheduler_tvm()
    if not 0.0 < options.share <= 1.0:
        raise DatasetError(f"a share of {options.share} of the records: give one above 0 and at most 1")
    if out.resolve() == source.resolve():
        raise DatasetError(f"{out} holds the logs that are timed again: choose another --out")
    pairs = logs_of(source)
    target = options.target or host_target()
    recorded = str(measurable_target(options.target))
    with locked(out):
        (out / MEASURED).mkdir(parents=True, exist_ok=True)
        write_rows(out / WORKLOADS, (row for _, row in pairs))
        turns = []
        for log, row in pairs:
            new = out / MEASURED / str(row["log"])
            if new.exists():
                for reason in mend(new):
                    watch.note(f"moved aside: {reason}")
            turns.append(_Turn(row, log, new, (target, recorded), options))
        if checks := beside(str(pairs[0][0])):
            carry(checks, out, now=time.time())
        believed = Believed(Measurer(options.measure), lambda: reference(target))
        with kept_workers(), several_places(options.measure.places):
            return take_turns(
                turns,
                lambda turn, interrupt: turn.take(Interruptible(believed, interrupt), watch),
                lambda turn, error: watch.note(f"{turn.log.name}: left out: {error}"),
                refusals=REFUSALS,
                minutes=options.minutes,
                start=time.monotonic(),
                watch=watch,
            )


def logs_of(source: Path) -> list[tuple[Path, Row]]:
    """The logs of a folder as `collect` makes it, by name, each with its row, whose `log` is without .gz.

    Raises
    ------
    DatasetError
        There are none, one of no workload, or one both plain and gzipped.
    """
    listed = [row for row in every_row(source / WORKLOADS) if isinstance(row.get("log"), str)]
    rows = {_plain(row["log"]): row for row in listed}
    logs = sorted(log for ending in ENDINGS for log in (source / MEASURED).glob(f"*{ending}"))
    if not logs:
        raise DatasetError(
            f"{source / MEASURED} has no logs ({' or '.join(ENDINGS)}): name a folder that `collect` made"
        )
    twice = [name for name, count in Counter(_plain(log.name) for log in logs).items() if count > 1]
    if twice:
        raise DatasetError(
            f"{source / MEASURED} has {twice[0]} and {twice[0]}.gz: move the one away that is not the log"
        )
    unknown = [log.name for log in logs if _plain(log.name) not in rows]
    if unknown:
        raise DatasetError(f"{source / WORKLOADS} has no workload for the log {unknown[0]}")
    return [(log, {**rows[_plain(log.name)], "log": _plain(log.name)}) for log in logs]


def _plain(name: str) -> str:
    """A log's name without .gz: either the log or its row may have been given one by hand."""
    return name.removesuffix(".gz")


def fastest(seconds: Sequence[float], share: float) -> set[int]:
    """The places of the `share` with the least times, one at least, of those with a time (no NaN)."""
    timed = sorted((second, place) for place, second in enumerate(seconds) if second == second)
    return {place for _, place in timed[: max(1, round(share * len(timed)))]}


class _Turn:
    """One log: its records, which of them are timed again, and the new log."""

    def __init__(
        self, row: Row, log: Path, new: Path, target: tuple[str, str], options: RemeasureOptions
    ) -> None:
        self.row, self.log, self.new, self.options = row, log, new, options
        self.target, recorded = target
        self.exhausted = False
        self.lines: list[bytes] = []
        seconds: list[float] = []
        for line in LogReader(str(log)):
            if line.problem:
                raise LogError(line.problem, place=line.place)
            record = parse_record(line.data, place=line.place)
            if record.workload_key != row["workload_key"]:
                raise LogError(
                    f"its workload is {record.workload_key[:80]} and not its file's", place=line.place
                )
            if record.target != recorded:
                raise other_target(log, record.target, recorded, option="LOGS")
            self.lines.append(line.data.rstrip())
            seconds.append(record.measurement.seconds)
        self.chosen = fastest(seconds, options.share)
        written = new.read_bytes().splitlines() if new.exists() else []
        self.count = len(written)
        same = [
            _schedule(ours) == _schedule(theirs) for ours, theirs in zip(written, self.lines, strict=False)
        ]
        if self.count > len(self.lines) or not all(same):
            raise DatasetError(f"{new} does not begin as {log} does: choose another --out")
        self._task: Any = None

    @property
    def wants(self) -> int:
        return 0 if self.exhausted else len(self.lines) - self.count

    def take(self, measurer: Interruptible, watch: Watch) -> tuple[int, int]:
        """Time one batch and write it with what lies between; how many were timed, and how many failed."""
        end = self.count
        batch: list[int] = []
        while end < len(self.lines) and len(batch) < self.options.batch:
            batch += [end] if end in self.chosen else []
            end += 1
        measured = failed = 0
        with open(self.new, "ab") as stream:
            for place, line, kind in self._timed(batch, end, measurer):
                stream.write(line + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
                self.count += 1
                measured += place in self.chosen
                failed += kind != "ok"
                watch.step(kind)
        return measured, failed

    def _timed(self, batch: list[int], end: int, measurer: Interruptible) -> Iterator[tuple[int, bytes, str]]:
        """Place, line and outcome of each record up to `end`, those of `batch` with new times."""
        records = autoscheduler_tvm().auto_scheduler.measure_record
        if batch and self._task is None:
            self._task = task_of(self.row, self.target)
        load = records.load_record_from_string
        states = [load(self.lines[place].decode())[0].state for place in batch]
        results = measurer.measure(self._task, states) if batch else iter(())
        for place in range(self.count, end):
            line, kind = self.lines[place], "ok"
            if place in batch:
                entry, result = next(results)
                kind = ERROR_KINDS.get(int(result.error_no), "unknown")
                if kind == "ok" or not self.options.keep:
                    line = str(records.dump_record_to_string(entry, result)).rstrip("\n").encode()
            yield place, line, kind


def _schedule(line: bytes) -> Any:
    """The steps of a record, by which one is told from another."""
    try:
        return orjson.loads(line)["i"][1][1]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
