"""`wmsched-data collect`: sample schedules, measure them, append them to logs.

One log a task in TenSet's format. A log is only ever appended to, a record at a time and with fsync, and what
it holds is not measured again: a run that was killed at any moment goes on from what its logs say.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from data_builder.base.replay import task_of
from data_builder.base.store import locked
from data_builder.collect.measure import Believed, MeasureOptions, Measurer
from data_builder.collect.noise import reference
from data_builder.collect.round_robin import REFUSALS, Interruptible, take_turns
from data_builder.collect.sampling import Guide, Sampler, guide
from data_builder.read.log_paths import MEASURED
from data_builder.read.tasks import Row, log_name, select, with_rewrite
from data_builder.read.workloads import every_row, write_rows
from wmsched.ansor.runner import several_places
from wmsched.ansor.workers import kept_workers
from wmsched.base.errors import DatasetError, WmschedError
from wmsched.base.interrupt import Interrupt
from wmsched.schedules.log_file import mend, other_target, skipped, tally
from wmsched.schedules.types import ERROR_KINDS
from wmsched.toolchain.resolve import autoscheduler_tvm, host_target
from wmsched.toolchain.targets import TARGET_FORMS, measurable_target, target_of

WORKLOADS = "workloads.json.gz"  # in the folder of a collection: the rows of its logs
VARIANTS = 3  # samples of a batch, from other seeds, before its task counts as used up

__all__ = ["CollectOptions", "Watch", "collect", "log_name", "select"]


class Watch(Protocol):
    """What collecting tells whoever watches it."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def start(self, what: str, total: int, done: int) -> None:
        """`done` of `total` schedules are in the logs."""

    def step(self, kind: str = "ok") -> None:
        """One more is; `kind` says what measuring it ended in."""


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
        "none", "xgb", or a bundle; see `sampling.guide`.
    minutes : float
        No batch is begun after so long; 0 for no limit. Tasks take turns, so that stopping early leaves them
        even.
    batch : int
        Schedules of a task at a turn.
    target : str
        "" for this machine's.
    noise_check : bool
        Measure a reference program before and after each batch; see `noise`.
    """

    trials: int
    mix: tuple[int, int] = (28, 12)
    cost_model: str = "none"
    minutes: float = 0.0
    batch: int = 20
    target: str = ""
    seed: int = 0
    noise_check: bool = False
    measure: MeasureOptions = field(default_factory=MeasureOptions)


def collect(rows: Sequence[Row], out: Path, options: CollectOptions, watch: Watch) -> dict[str, int]:
    """Measure until each task has its records, or time is up.

    Returns
    -------
    dict
        Counts: `tasks`, `records` in the logs, `measured` in this run, `failed` of these, `unfinished` tasks.

    Raises
    ------
    DatasetError
        `out` has logs of other workloads under the same names, or a `workloads.json.gz` that is none of
        `collect`'s, or another run is writing it.
    LogError
        A log has records of its workload for another target.
    UnknownName
        The target is not known.
    EnvironmentProblem
        No TVM with AutoScheduler, no compiler to link with, no device for the target, or nothing can be
        measured.
    """
    autoscheduler_tvm()
    target = options.target or host_target()
    recorded = _recorded_target(options)
    guiding = guide(options.cost_model)
    folder = out / MEASURED
    with locked(out):
        for row in rows:
            _check_target(folder / log_name(row), row["workload_key"], recorded)
        held = _earlier_rows(out / WORKLOADS)
        folder.mkdir(parents=True, exist_ok=True)
        rows = list(_readable(rows, watch))
        _write_workloads(rows, held, out, target)
        turns = []
        for row in rows:
            log = folder / log_name(row)
            if log.exists():
                for reason in mend(log):
                    watch.note(f"moved aside: {reason}")
            turns.append(_Turn(row, log, target=target, guiding=guiding, options=options))
        return _take_turns(turns, options, out, watch)


def _recorded_target(options: CollectOptions) -> str:
    """The target as records name it: one that can be measured here, but for that of remote devices, to which
    the compiler and the device here say nothing."""
    if not options.measure.rpc:
        return str(measurable_target(options.target))
    return str(target_of(options.target, host_target, TARGET_FORMS))


def _check_target(log: Path, key: str, target: str) -> None:
    """LogError if a log has records of the workload for another target: they would count as this one's."""
    others = [found for held, found in tally(log).trials if held == key and found != target]
    if others:
        raise other_target(log, others[0], target, option="--out")


class _Turn:
    """One task with its log; its sampler is made when its turn first comes."""

    def __init__(
        self,
        row: Row,
        log: Path,
        *,
        target: str,
        guiding: Guide | None,
        options: CollectOptions,
    ) -> None:
        self.row = row
        self.log = log
        self.target = target
        self.guiding = guiding
        self.options = options
        self.count = _lines(log)
        self.exhausted = False
        self._sampler: Sampler | None = None

    @property
    def wants(self) -> int:
        return 0 if self.exhausted else max(0, self.options.trials - self.count)

    def take(self, measurer: Interruptible, watch: Watch) -> tuple[int, int]:
        """Measure one batch; return how many were measured and how many of these failed."""
        if self._sampler is None:
            self._sampler = Sampler(task_of(self.row, self.target), self.log, cost_model=self.guiding)
        sampler = self._sampler
        start, end, guided = batch_at(self.count, self.options)
        seed = self.options.seed * 1_000_003 + self.row["id"] * 1009 + start
        states: list[Any] = []
        for variant in range(VARIANTS):
            # The batch is sampled as it was when it began, and what of it is in the log already left out: a
            # run that was killed goes on with the very schedules that it would have measured.
            states = sampler.next(end - start, guided=guided, seed=seed + variant * 7919, before=start)
            if states:
                break
        states = states[: self.wants]
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
                watch.step(ERROR_KINDS.get(int(result.error_no), "unknown"))
        return measured, failed


def batch_at(count: int, options: CollectOptions) -> tuple[int, int, bool]:
    """First and last record (exclusive) of the batch that record `count` is in, and whether it is guided.

    Batches follow from the options alone, so a run that goes on finds the same ones.
    """
    random_part, guided_part = options.mix
    turn = round(options.trials * random_part / (random_part + guided_part))  # from here on guided
    guided = count >= turn
    origin, limit = (turn, options.trials) if guided else (0, turn)
    start = origin + (count - origin) // options.batch * options.batch
    return start, min(start + options.batch, limit), guided


def _lines(log: Path) -> int:
    if not log.exists():
        return 0
    with open(log, "rb") as stream:
        return sum(not skipped(line) for line in stream)


def _take_turns(turns: Sequence[_Turn], options: CollectOptions, out: Path, watch: Watch) -> dict[str, int]:
    start = time.monotonic()
    measurer = Measurer(options.measure)
    if options.measure.rpc:
        watch.note(f"{measurer.devices} devices {options.measure.key!r} at {options.measure.rpc}")
    check = _noise_check(measurer, options, out, watch)
    believed = Believed(measurer, lambda: reference(options.target or host_target()))

    def take(turn: _Turn, interrupt: Interrupt) -> tuple[int, int]:
        check()
        return turn.take(Interruptible(believed, interrupt), watch)

    with kept_workers(), several_places(options.measure.places):
        counts = take_turns(
            turns,
            take,
            lambda turn, error: watch.note(f"{turn.log.name}: left out: {error}"),
            refusals=REFUSALS,
            minutes=options.minutes,
            start=start,
            watch=watch,
        )
        check()
    return counts


def _noise_check(measurer: Measurer, options: CollectOptions, out: Path, watch: Watch) -> Callable[[], None]:
    """What is called between batches: nothing, or a measurement of the reference program."""
    if not options.noise_check:
        return lambda: None
    from data_builder.collect.noise import Reference
    from data_builder.read.noise_checks import TOLERANCE, Checks

    reference = Reference(measurer, options.target or host_target(), out)

    def check() -> None:
        seconds = reference.check()
        usual = Checks.read(reference.path).usual
        if not seconds <= usual * (1 + TOLERANCE):
            watch.note(
                f"the machine is disturbed: the reference program took {seconds * 1e3:.3g} ms, "
                f"usually {usual * 1e3:.3g} ms; the records around are marked"
            )

    return check


def _readable(rows: Sequence[Row], watch: Watch) -> Iterator[Row]:
    """The rows with their layout rewrite options; a word about those that TVM cannot read."""
    for row in rows:
        try:
            yield with_rewrite(row)
        except WmschedError as error:
            watch.note(f"{log_name(row)}: left out: {error}")


def _earlier_rows(path: Path) -> dict[str, Row]:
    """The rows that earlier runs have written, by the names of their logs.

    Raises
    ------
    DatasetError
        They are of somebody else, whose file this run would replace.
    """
    held: dict[str, Row] = {}
    for place, row in enumerate(every_row(path) if path.exists() else []):
        log = row.get("log")
        if type(row.get("id")) is not int or log != log_name(row):
            raise DatasetError(
                f"{path} is no earlier run's, for its row {place} (from 0) has the log {log!r}, and this run "
                "would replace it: move it elsewhere (--workloads may name it there) or choose another --out"
            )
        held[log] = row
    return held


def _write_workloads(rows: Sequence[Row], held: dict[str, Row], out: Path, target: str) -> None:
    """Write `workloads.json.gz` with the rows of this run and those `held` of earlier ones."""
    for row in rows:
        name = log_name(row)
        earlier = held.get(name)
        if earlier is not None and earlier["workload_key"] != row["workload_key"]:
            raise DatasetError(
                f"{out} has the log {name} of another workload, {earlier['workload_key']}; "
                "choose another --out"
            )
        held[name] = {**row, "target": target, "log": name}
    write_rows(out / WORKLOADS, (held[name] for name in sorted(held)))
