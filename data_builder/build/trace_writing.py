"""One workload's records of MetaSchedule databases into its trajectories and states; runs in a worker."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from data_builder.base.disk_set import DiskSet
from data_builder.base.store import TableWriter, write_bytes, write_json
from data_builder.build.record_selection import RecordSelection
from data_builder.build.trace_replay import TraceReplay, module_of
from data_builder.build.trajectories import done_path, problems_path, remove_tables, workload_row
from data_builder.read.databases import MetaRecord, parse_line
from wmsched.base.errors import LogError, WmschedError
from wmsched.learn.data.dataset import STATES, TRAJECTORIES, states_path, trajectories_path
from wmsched.schedules.traces import decode_steps
from wmsched.schedules.types import Workload


@dataclass(frozen=True, slots=True)
class MetaJob:
    """What a worker needs to write one workload; the attributes are those of `trajectories.Job`.

    `module` is the workload's line ``[hash, module]``; `lines` the file with its records, each with the
    number of its source and of its line before it.
    """

    workload_id: str
    count: int
    module: Any
    lines: Path
    target: str
    sources: tuple[str, ...]
    names: tuple[str, str]  # network and description
    out: Path
    scratch: Path
    states_per_workload: int
    threads: int = 0  # that its programs ran on, where the database's folder says it
    skip: tuple[int, ...] = ()
    replay: bool = True
    again: bool = False


def write_workload(job: MetaJob, beat: Callable[[int, str], None]) -> dict[str, Any]:
    """Write the trajectories and states of one workload, then its done file; returns what is in that."""
    with (
        TableWriter(states_path(job.out, job.workload_id), STATES) as states,
        TableWriter(trajectories_path(job.out, job.workload_id), TRAJECTORIES) as trajectories,
        DiskSet(folder=job.scratch) as seen,
        DiskSet(folder=job.scratch) as texts,
    ):
        writing = _Writing(job, states, seen, texts)
        for position, record, source, number in writing.records(beat):
            trajectories.add(writing.row(position, record, source, number))
    done = writing.done(states.rows)
    if done["workload"] is None:
        remove_tables(job.out, job.workload_id)
    write_bytes(problems_path(job.scratch, job.workload_id), "".join(writing.problems).encode())
    write_json(done_path(job.scratch, job.workload_id), done)
    return done


class _Writing:
    """The counts and the replay of one workload while it is written."""

    def __init__(self, job: MetaJob, states: TableWriter, seen: DiskSet, texts: DiskSet) -> None:
        from wmsched.metaschedule.workload import workload_of

        self.job = job
        self.picks = RecordSelection(
            job.count, job.states_per_workload, job.workload_id, skip=job.skip, problem=self._problem
        )
        self.sources: dict[str, Counter[str]] = {}
        self.problems: list[str] = []
        self.seen = seen
        self.steps = 0
        mod = module_of(job.module)
        known = workload_of(mod, job.target, network=job.names[0], desc=job.names[1])
        self.workload: Workload = replace(known, threads=job.threads)  # not this process's
        columns = STATES.names

        def tell(name: str, text: str) -> None:
            row = {"hash": name, "text": text, "workload_id": job.workload_id}
            states.add({column: row[column] for column in columns})

        self.replay = TraceReplay(mod, on_text=tell, told=texts)
        self.s0 = ""
        if job.replay:
            try:
                self.s0 = self.replay([])[0]
            except WmschedError as error:
                self._problem(f"workload {job.workload_id}", f"no states for it: {error}")

    def _problem(self, place: str, reason: str) -> None:
        self.problems.append(f"{place}: {reason}\n")

    def records(self, beat: Callable[[int, str], None]) -> Iterator[tuple[int, MetaRecord, str, int]]:
        """The good records with their position, source and line; the others are counted."""
        with open(self.job.lines, "rb") as stream:
            for position, line in enumerate(stream):
                index, number, data = line.rstrip(b"\n").split(b" ", 2)
                source = self.job.sources[int(index)]
                place = f"{source}:{int(number)}"
                counts = self.sources.setdefault(source, Counter())
                beat(position, place)
                try:
                    record = parse_line(data, place=place)
                except LogError as error:
                    counts["bad"] += 1
                    self._problem(place, error.reason)
                    continue
                whole = orjson.dumps([record.steps, list(record.measurement.costs)])
                identity = hashlib.blake2b(whole, digest_size=16).digest()
                if not self.seen.add(identity):
                    counts["duplicates"] += 1
                    self._problem(place, "the same measurement as an earlier line; left out")
                    continue
                counts["records"] += 1
                counts[f"kind:{record.measurement.kind}"] += 1
                yield position, record, source, int(number)

    def row(self, position: int, record: MetaRecord, source: str, number: int) -> dict[str, Any]:
        """The record as a row of the trajectories table."""
        texts = [action.text for action in decode_steps(record.steps, self.workload.stages)]
        self.steps += len(texts)
        row = {
            "workload_id": self.job.workload_id,
            "source": source,
            "line": number,
            "steps": orjson.dumps(record.steps).decode(),
            "action_texts": texts,
            "states": self._replayed(position, record, f"{source}:{number}"),
            "costs": list(record.measurement.costs),
            "seconds": record.measurement.seconds,
            "error_no": record.measurement.error_no,
            "all_cost": 0.0,  # a database has neither this nor the time of day
            "timestamp": 0.0,
            "disturbed": None,
        }
        return {name: row[name] for name in TRAJECTORIES.names}

    def _replayed(self, position: int, record: MetaRecord, place: str) -> list[str]:
        return self.picks.states(position, place, lambda: self.replay(record.steps)) if self.s0 else []

    def done(self, states: int) -> dict[str, Any]:
        """The content of the done file."""
        workload = workload_row(self.job.workload_id, self.workload, layout_rewrite=0, s0=self.s0)
        kept = any(counts["records"] for counts in self.sources.values())
        return {
            "workload": workload if kept else None,
            "sources": {source: dict(counts) for source, counts in self.sources.items()},
            "steps": self.steps,
            "states": states if kept else 0,
            "replayed": self.picks.replayed,
            "replay_failed": self.picks.failed,
            "problems": len(self.problems),
        }
