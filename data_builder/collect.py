"""`wmsched-data collect`: sample schedules, measure them, append them to logs.

One log a task in TenSet's format. A log is only ever appended to, a record at a time and with fsync, and what
it holds
is not measured again: a run that was killed at any moment goes on from what its logs say.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from data_builder.measure import MeasureOptions, Measurer
from data_builder.sampling import Sampler, cost_model_maker
from data_builder.workloads import write_rows
from wmsched.errors import DatasetError, UnknownName, WmschedError
from wmsched.resolve import autoscheduler_tvm, host_target
from wmsched.tuning_log import mend

Row = Mapping[str, Any]


class Watch(Protocol):
    """What collecting tells whoever watches it."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def start(self, what: str, total: int, done: int) -> None:
        """`done` of `total` schedules are in the logs."""

    def step(self) -> None:
        """One more is."""


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """What is collected.

    Attributes
    ----------
    trials : int
        Records a task is to have, those of earlier runs included.
    mix : tuple of int
        Parts of random and of guided schedules; the random ones come first.
    cost_model : str
        "none", "xgb", or a bundle; see `sampling.cost_model_maker`.
    minutes : float
        No batch is begun after so long; 0 for no limit. Tasks take turns, so that stopping early leaves them
        even.
    batch : int
        Schedules of a task at a turn.
    target : str
        "" for this machine's.
    """

    trials: int
    mix: tuple[int, int] = (28, 12)
    cost_model: str = "none"
    minutes: float = 0.0
    batch: int = 20
    target: str = ""
    seed: int = 0
    measure: MeasureOptions = field(default_factory=MeasureOptions)


def select(rows: Sequence[Row], spec: str) -> list[Row]:
    """Choose tasks of a workloads file.

    Parameters
    ----------
    rows : sequence of rows
    spec : str
        Comma-separated: `all`; an id or a range of ids such as `10-20`; `log` or `nolog` for rows that name a
        log or
        do not; or a part of the network's or the task's name.

    Raises
    ------
    UnknownName
        A part of `spec` chooses nothing.
    """
    chosen: dict[int, Row] = {}
    for term in filter(None, (part.strip() for part in spec.split(","))):
        found = {place: row for place, row in enumerate(rows) if _matches(place, row, term)}
        if not found:
            raise UnknownName(f"--tasks {term!r} chooses none of the {len(rows)} workloads; ids run from 0")
        chosen.update(found)
    return [{**chosen[place], "id": _id(place, chosen[place])} for place in sorted(chosen)]


def _id(place: int, row: Row) -> int:
    given = row.get("id")
    return given if type(given) is int and given >= 0 else place


def _matches(place: int, row: Row, term: str) -> bool:
    if term == "all":
        return True
    if term in ("log", "nolog"):
        return bool(row.get("log")) == (term == "log")
    first, dash, last = term.partition("-")
    if first.isdigit() and (last.isdigit() or not dash):
        return int(first) <= _id(place, row) <= int(last or first)
    return term in str(row.get("network", "")) or term in str(row.get("desc", ""))


def _with_rewrite(row: Row) -> Row:
    """The row with a layout rewrite option, where the file says none.

    AutoScheduler's default on a CPU is 2 (rewrite in advance). Builds of `dense` from relay fail under it, so
    these go without.
    """
    if row.get("layout_rewrite") is not None:
        return row
    return {**row, "layout_rewrite": 0 if "dense" in str(row.get("desc", "")) else 2}


def log_name(row: Row) -> str:
    """File name of a task's log, such as `0003_resnet50.json`."""
    network = "".join(c if c.isalnum() or c in "-_." else "_" for c in str(row.get("network", "")))
    return f"{row['id']:04d}_{network or 'task'}.json"


def collect(rows: Sequence[Row], out: Path, options: CollectOptions, watch: Watch) -> dict[str, int]:
    """Measure until each task has its records, or time is up.

    Returns
    -------
    dict
        Counts: `tasks`, `records` in the logs, `measured` in this run, `failed` of these, `unfinished` tasks.

    Raises
    ------
    DatasetError
        `out` has logs of other workloads under the same names.
    EnvironmentProblem
        No TVM with AutoScheduler.
    """
    autoscheduler_tvm()
    target = options.target or host_target()
    maker = cost_model_maker(options.cost_model)
    folder = out / "measure_records"
    folder.mkdir(parents=True, exist_ok=True)
    _write_workloads(rows, out, target)
    turns = []
    for row in rows:
        log = folder / log_name(row)
        if log.exists():
            for reason in mend(log):
                watch.note(f"moved aside: {reason}")
        turns.append(_Turn(row, log, target=target, maker=maker, options=options))
    return _take_turns(turns, options, watch)


class _Turn:
    """One task with its log; its sampler is made when its turn first comes."""

    def __init__(
        self,
        row: Row,
        log: Path,
        *,
        target: str,
        maker: Callable[[Path], Any] | None,
        options: CollectOptions,
    ) -> None:
        self.row = row
        self.log = log
        self.target = target
        self.maker = maker
        self.options = options
        self.count = _lines(log)
        self.exhausted = False
        self._sampler: Sampler | None = None

    @property
    def wants(self) -> int:
        return 0 if self.exhausted else max(0, self.options.trials - self.count)

    def take(self, measurer: Measurer, watch: Watch) -> tuple[int, int]:
        """Measure one batch; return how many were measured and how many of these failed."""
        if self._sampler is None:
            from wmsched.backends.workload import task_from_row

            task = task_from_row(dict(_with_rewrite(self.row)), target=self.target)
            self._sampler = Sampler(task, self.log, cost_model=self.maker)
        sampler = self._sampler
        random_part, guided_part = self.options.mix
        random_left = round(self.options.trials * random_part / (random_part + guided_part)) - self.count
        guided = random_left <= 0
        size = min(self.wants, self.options.batch, random_left if random_left > 0 else self.wants)
        seed = self.options.seed * 1_000_003 + self.row["id"] * 1009 + self.count
        states = sampler.next(size, guided=guided, seed=seed)
        if not states:
            self.exhausted = True
            watch.note(f"{self.log.name}: no new schedules after {self.count}; this task is done")
            return 0, 0
        measured = failed = 0
        with open(self.log, "ab") as stream:
            for entry, result in measurer.measure(sampler.task, states):
                dump = autoscheduler_tvm().auto_scheduler.measure_record.dump_record_to_string
                stream.write(dump(entry, result).rstrip("\n").encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
                sampler.note(entry.state)
                self.count += 1
                measured += 1
                failed += int(result.error_no) != 0
                watch.step()
        return measured, failed


def _lines(log: Path) -> int:
    if not log.exists():
        return 0
    with open(log, "rb") as stream:
        return sum(1 for line in stream if line.strip() and line[:1] not in (b"#", b" "))


def _take_turns(turns: Sequence[_Turn], options: CollectOptions, watch: Watch) -> dict[str, int]:
    start = time.monotonic()
    measurer = Measurer(options.measure)
    counts = {"tasks": len(turns), "records": 0, "measured": 0, "failed": 0, "unfinished": 0}
    done = sum(min(turn.count, options.trials) for turn in turns)
    watch.start("measuring", options.trials * len(turns), done)
    while True:
        waiting = [turn for turn in turns if turn.wants]
        if not waiting or (options.minutes and time.monotonic() - start > options.minutes * 60):
            break
        turn = min(waiting, key=lambda turn: turn.count)
        try:
            measured, failed = turn.take(measurer, watch)
        except WmschedError as error:
            turn.exhausted = True
            watch.note(f"{turn.log.name}: left out: {error}")
            continue
        counts["measured"] += measured
        counts["failed"] += failed
    counts["records"] = sum(turn.count for turn in turns)
    counts["unfinished"] = sum(turn.count < options.trials for turn in turns)
    return counts


def _write_workloads(rows: Sequence[Row], out: Path, target: str) -> None:
    """Write `workloads.json.gz`, the rows of earlier runs in `out` among it."""
    path = out / "workloads.json.gz"
    held: dict[str, Row] = {}
    if path.exists():
        for row in orjson.loads(gzip.decompress(path.read_bytes())):
            held[row["log"]] = row
    for row in rows:
        name = log_name(row)
        earlier = held.get(name)
        if earlier is not None and earlier["workload_key"] != row["workload_key"]:
            raise DatasetError(
                f"{out} has the log {name} of another workload, {earlier['workload_key']}; "
                "choose another --out"
            )
        held[name] = {**_with_rewrite(row), "target": target, "log": name}
    write_rows(path, [dict(held[name]) for name in sorted(held)])
