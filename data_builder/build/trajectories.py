"""One workload's log lines into its trajectories and states. Runs in a worker process of `build`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import orjson

from data_builder.base.disk_set import DiskSet
from data_builder.base.replay import Replay, dag_of
from data_builder.base.store import TableWriter, write_json
from data_builder.build.aliasing import may_be_miscompiled
from data_builder.build.record_selection import RecordSelection
from data_builder.read.noise_checks import Checks, checks_of
from data_builder.read.spool import read_sources, read_spool
from wmsched.base.errors import LogError, WmschedError
from wmsched.learn.data.dataset import STATES, TRAJECTORIES, states_path, trajectories_path
from wmsched.schedules.steps import check_sizes, decode_steps, parse_record
from wmsched.schedules.types import Record, Workload


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to write one workload.

    Attributes
    ----------
    workload_id : str
    count : int
        Lines of the workload in its spool file.
    row : mapping or None
        The workload's row of the workloads file; None where it has none, which means no states.
    states_per_workload : int
        How many records get their states; 0 for all.
    skip : tuple of int
        Positions of records not to replay: a worker died replaying them.
    replay : bool
        False: no states at all, after workers died of two different records.
    drop_aliased : bool
        Leave out what TVM may have compiled wrong (see `aliasing`), and, where there is a `row`, what
        it cannot be asked about: the records in `skip`.
    lower : bool
        False: no schedule is lowered for that any more, after yet another worker died. All are left out.
    again : bool
        A worker died before it had begun, and this is the second one.
    base : Path
        Where names of logs that are no whole paths begin: a cluster's workers run in folders of their own.
    """

    workload_id: str
    count: int
    row: Mapping[str, Any] | None
    out: Path
    scratch: Path
    states_per_workload: int
    skip: tuple[int, ...] = ()
    replay: bool = True
    drop_aliased: bool = False
    lower: bool = True
    again: bool = False
    base: Path = Path()

    @property
    def looks(self) -> bool:
        """Whether schedules are lowered to find what TVM may have compiled wrong."""
        return self.drop_aliased and self.lower and self.row is not None


def workload_row(workload_id: str, workload: Workload, *, layout_rewrite: int, s0: str) -> dict[str, Any]:
    """A row of the dataset's table of workloads."""
    return {
        "workload_id": workload_id,
        "workload_key": workload.key,
        "target": workload.target,
        "hardware": list(workload.hardware),
        "network": workload.network,
        "desc": workload.desc,
        "weight": workload.weight,
        "flop_ct": workload.flop_ct,
        "stages": workload.stages_json(),
        "layout_rewrite": layout_rewrite,
        "s0": s0,
        "threads": workload.threads,
        "networks": list(workload.networks),
    }


def done_path(scratch: Path, workload_id: str) -> Path:
    """The file whose presence says that a workload is finished; what it counted is in it."""
    return scratch / "done" / f"{workload_id}.json"


def problems_path(scratch: Path, workload_id: str) -> Path:
    """The text file of what was wrong with the workload's lines, `file:line: reason` each."""
    return scratch / "problems" / f"{workload_id}.txt"


def write_workload(job: Job, beat: Callable[[int, str], None]) -> dict[str, Any]:
    """Write the trajectories and states of one workload, then its done file.

    Parameters
    ----------
    job : Job
    beat : callable (position, place) -> None
        Called before each record, so that the parent knows which one a worker died of.

    Returns
    -------
    dict
        The content of the done file: the workload's row and its counts.
    """
    problems = problems_path(job.scratch, job.workload_id)
    problems.parent.mkdir(parents=True, exist_ok=True)
    with (
        TableWriter(states_path(job.out, job.workload_id), STATES) as states,
        TableWriter(trajectories_path(job.out, job.workload_id), TRAJECTORIES) as trajectories,
        # Begun anew by each attempt, and only read once there is a done file.
        open(problems, "w", encoding="utf-8", errors="replace") as told,
        DiskSet(folder=job.scratch) as seen,
        DiskSet(folder=job.scratch) as texts,
    ):
        writing = _Writing(job, states, told, seen, texts)
        for good in writing.records(beat):
            trajectories.add(writing.row(good))
        done = writing.done(states)
    if done["workload"] is None:
        remove_tables(job.out, job.workload_id)
    write_json(done_path(job.scratch, job.workload_id), done)
    return done


def remove_tables(out: Path, workload_id: str) -> None:
    """Remove the files of a workload of which no record is kept: it is none of the dataset's."""
    states_path(out, workload_id).unlink(missing_ok=True)
    trajectories_path(out, workload_id).unlink(missing_ok=True)


class Good(NamedTuple):
    """A record that is kept: its position among the workload's lines, its place, its actions in words."""

    position: int
    record: Record
    source: str
    number: int
    texts: list[str]


class _Writing:
    """The counts and the replay of one workload while it is written."""

    def __init__(self, job: Job, states: TableWriter, told: TextIO, seen: DiskSet, texts: DiskSet) -> None:
        self.job = job
        self.states = states
        self.picks = RecordSelection(
            job.count, job.states_per_workload, job.workload_id, skip=job.skip, problem=self._problem
        )
        self.sources: dict[str, Counter[str]] = {}
        self.told = told
        self.problems = 0
        self.seen = seen
        self.texts = texts
        self.workload: Workload | None = None
        self.first: Record | None = None
        self.checks: dict[str, Checks | None] = {}  # by log
        self.s0 = ""
        self.dag: Any = None  # once there is a record, if it can be had and is needed
        self.replay: Replay | None = None
        self.steps = 0

    def _start(self, record: Record) -> None:
        """From the first record on, target and hardware are known: build the DAG and the initial state."""
        self.first = record
        row = self.job.row or {}
        flops = float(row.get("flop_ct") or 0.0)
        self.workload = Workload(
            key=record.workload_key, target=record.target, hardware=record.hardware, flop_ct=flops,
            network=str(row.get("network") or ""), desc=str(row.get("desc") or ""),
            weight=int(row.get("weight") or 1),
            networks=tuple(map(str, row.get("networks") or ())),
        )  # fmt: skip
        if self.job.row is None or not (self.job.replay or self.job.looks):
            return
        try:
            self.dag = dag_of(self.job.row)
            if self.job.replay:
                self._start_replay(record, self.workload)
        except WmschedError as error:
            self.replay = None
            self._problem(f"workload {self.job.workload_id}", f"no states for it: {error}")

    def _start_replay(self, record: Record, workload: Workload) -> None:
        from wmsched.ansor.compute_dag import workload_from_dag  # only now that the right TVM is imported

        known = workload_from_dag(
            self.dag,
            key=record.workload_key,
            target=record.target,
            hardware=record.hardware,
            layout_rewrite=record.layout_rewrite,
        )
        flops = workload.flop_ct or known.flop_ct
        self.workload = replace(workload, stages=known.stages, flop_ct=flops)
        tell = self.states.add
        self.replay = Replay(
            self.dag, on_text=lambda name, text: tell({"hash": name, "text": text}), told=self.texts
        )
        self.s0 = self.replay(replace(record, steps=[]))[0]

    def _problem(self, place: str, reason: str) -> None:
        self.told.write(f"{place}: {reason}".replace("\n", " ") + "\n")
        self.problems += 1

    def records(self, beat: Callable[[int, str], None]) -> Iterator[Good]:
        """The good records; bad ones are counted."""
        sources = read_sources(self.job.scratch)
        for position, (source_index, number, data) in enumerate(
            read_spool(self.job.scratch, self.job.workload_id)
        ):
            source = sources[source_index]
            counts = self.sources.setdefault(source, Counter())
            place = f"{source}:{number}"
            beat(position, place)
            try:
                record = parse_record(data, place=place)
                if self.first is None:
                    self._start(record)
                    if self.job.drop_aliased and self.job.lower and self.dag is None:
                        self._problem(
                            f"workload {self.job.workload_id}",
                            "no task to lower its schedules with, so none could be looked at for what TVM may"
                            " have compiled wrong; all stay. Give its row with --workloads",
                        )
            except LogError as error:
                counts["bad"] += 1
                self._problem(place, error.reason)
                continue
            try:
                check_sizes(record.steps)
                texts = self._texts(record)
            except LogError as error:  # steps of the right form that no program can have
                counts["bad"] += 1
                self._problem(place, error.reason)
                continue
            identity = _identity(record)
            if not self.seen.add(identity):
                counts["duplicates"] += 1
                self._problem(place, "the same measurement as an earlier line; left out")
                continue
            reason = self._why_dropped(position, record)
            if reason:
                counts["bad"] += 1
                self._problem(place, f"{reason}; left out")
                continue
            counts["records"] += 1
            counts[f"kind:{record.measurement.kind}"] += 1
            yield Good(position, record, source, number, texts)

    def _why_dropped(self, position: int, record: Record) -> str:
        """Why `drop_aliased` leaves a record out; "" where it does not."""
        job = self.job
        if not job.drop_aliased or job.row is None:
            return ""
        if position in job.skip or not job.lower:
            of = "a worker process died of it" if job.lower else "worker processes died of its workload"
            return f"{of}, so whether TVM compiled it right cannot be told"
        if self.dag is not None and may_be_miscompiled(self.dag, record):
            return "TVM may have compiled it wrong, so its time says nothing"
        return ""

    def _texts(self, record: Record) -> list[str]:
        assert self.workload is not None
        return [action.text for action in decode_steps(record.steps, self.workload.stages)]

    def row(self, good: Good) -> dict[str, Any]:
        """The record as a row of the trajectories table."""
        record, source, number, texts = good.record, good.source, good.number, good.texts
        self.steps += len(texts)
        measurement = record.measurement
        return {
            "workload_id": self.job.workload_id,
            "source": source,
            "line": number,
            "steps": orjson.dumps(record.steps).decode(),
            "action_texts": texts,
            "states": self._replayed(good.position, record, f"{source}:{number}"),
            "costs": list(measurement.costs),
            "seconds": measurement.seconds,
            "error_no": measurement.error_no,
            "all_cost": measurement.all_cost,
            "timestamp": measurement.timestamp,
            "disturbed": self._disturbed(source, measurement.timestamp),
        }

    def _disturbed(self, source: str, timestamp: float) -> bool | None:
        if source not in self.checks:
            self.checks[source] = checks_of(source, base=self.job.base)
        checks = self.checks[source]
        return None if checks is None else checks.disturbed(timestamp)

    def _replayed(self, position: int, record: Record, place: str) -> list[str]:
        replay = self.replay
        return [] if replay is None else self.picks.states(position, place, lambda: replay(record))

    def done(self, states: TableWriter) -> dict[str, Any]:
        """The content of the done file."""
        kept = any(counts["records"] for counts in self.sources.values())
        if kept and not self.job.replay and self.job.row is not None:
            self._problem(
                f"workload {self.job.workload_id}", "kept without states: worker processes died of it"
            )
        workload = None
        if kept and self.workload is not None and self.first is not None:
            workload = workload_row(
                self.job.workload_id,
                self.workload,
                layout_rewrite=self.first.layout_rewrite,
                s0=self.s0,
            )
        return {
            "workload": workload,
            "sources": {source: dict(counts) for source, counts in self.sources.items()},
            "steps": self.steps,
            "states": states.rows if kept else 0,
            "replayed": self.picks.replayed,
            "replay_failed": self.picks.failed,
            "problems": self.problems,
        }


def _identity(record: Record) -> bytes:
    measurement = record.measurement
    whole = (
        record.steps,
        list(measurement.costs),
        measurement.error_no,
        measurement.all_cost,
        measurement.timestamp,
    )
    return hashlib.blake2b(orjson.dumps(whole), digest_size=16).digest()
