"""`wmsched-data collect --scheduler meta`: sample schedules, measure them, append them to a database.

The database is MetaSchedule's own: ``ms.database.JSONDatabase(work_dir=OUT)`` reads it. It is only ever
appended to, a record at a time and with fsync, and what it holds is not measured again: a run that was killed
at any moment goes on from what its files say.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import orjson

from data_builder.base.store import locked, write_json
from data_builder.build.databases import NAMES, canonical
from data_builder.collect.collect import CollectOptions
from data_builder.collect.round_robin import REFUSALS, Interruptible, take_turns
from data_builder.collect.sampling import seed_of
from data_builder.metaschedule.measure import MetaMeasurer
from data_builder.metaschedule.programs import Program
from data_builder.metaschedule.sampling import TraceSampler
from data_builder.read.databases import (
    GZ,
    RECORDS,
    THREADS,
    WORKLOADS,
    append,
    read_modules,
    read_records,
    stored,
)
from wmsched.base.cores import named_threads
from wmsched.base.errors import DatasetError, LogError, UnknownName
from wmsched.schedules import database as meta_database
from wmsched.schedules.log_file import other_target
from wmsched.toolchain.resolve import is_cpu, meta_schedule_tvm


class Watch(Protocol):
    """What collecting tells whoever watches it."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def start(self, what: str, total: int, done: int) -> None:
        """`done` of `total` schedules are in the database."""

    def step(self) -> None:
        """One more is."""


def collect_traces(
    programs: list[tuple[int, Program]],
    out: Path,
    options: CollectOptions,
    watch: Watch,
    *,
    measurer: MetaMeasurer | None = None,
) -> dict[str, int]:
    """Measure until each program has its records, or time is up.

    Parameters
    ----------
    programs : list of (number, Program)
        As `programs.select` chooses them.
    out : Path
        The database's folder.
    options : CollectOptions
        As for AutoScheduler; `cost_model` is "none" or a bundle's name or folder.
    measurer : optional
        In place of this machine's.

    Returns
    -------
    dict
        Counts: `tasks`, `records` in the database, `measured` in this run, `failed` of these, `unfinished`.

    Raises
    ------
    UnknownName
        The cost model or the target is not known.
    EnvironmentProblem
        This machine cannot run the target's programs, and no other measurer was given.
    DatasetError
        Another run is writing `out`.
    LogError
        The database has records for another target, or of programs on another number of threads.
    """
    meta_schedule_tvm()
    from wmsched.metaschedule.intrinsics import import_intrinsics
    from wmsched.toolchain.targets import meta_target, need_device

    target = meta_target(options.target)
    if measurer is None:
        need_device(target, options.target)
    import_intrinsics(target)  # before the first context imports those of all machines
    maker = _maker(options.cost_model)
    with locked(out):
        for note in meta_database.mend(out):
            watch.note(note)
        threads = len(set(options.measure.cores)) or named_threads(os.environ)
        database = _Database(out, target, threads if is_cpu(target) else 0)
        turns = list(_turns(programs, database, maker, options, watch))
        database.write_names()
        start, device = time.monotonic(), measurer or MetaMeasurer(options.measure, target)
        return take_turns(
            turns,
            lambda turn, interrupt: turn.take(Interruptible(device, interrupt), watch),
            lambda turn, error: watch.note(f"{turn.program.desc}: left out: {str(error)[-300:]}"),
            refusals=REFUSALS,
            minutes=options.minutes,
            start=start,
            watch=watch,
        )


def _maker(name: str) -> Callable[[], Any] | None:
    if name == "none":
        return None
    if name == "xgb":
        raise UnknownName("--cost-model xgb guides AutoScheduler only; for traces name a bundle, or none")
    from wmsched.metaschedule.cost_model import WorldModelCostModel

    bundle = WorldModelCostModel(name)
    return lambda: bundle


class _Database:
    """The two files, what is in them, and the names beside them.

    Raises
    ------
    LogError
        Records are for another target, or of programs on another number of threads: they would count as this
        one's. `threads` are 0 on a GPU.
    """

    def __init__(self, folder: Path, target: Any, threads: int) -> None:
        from wmsched.toolchain.targets import target_text

        for packed in (stored(folder, name) for name in (WORKLOADS, RECORDS)):
            if packed.suffix == GZ:  # it would be read, and what is measured numbered apart from it
                raise DatasetError(
                    f"{packed}: a gzipped database is read only; gunzip it, or give another --out"
                )
        ours = target_text(target)
        self.folder, self.target = folder, target
        self.lines = {row[0] + row[1]: number for number, row in read_modules(folder).items()}
        self._next = _count(folder / WORKLOADS)
        self.measured: dict[int, set[bytes]] = {}
        self.counts: dict[int, int] = {}
        for _, record, problem in read_records(folder) if (folder / RECORDS).exists() else ():
            if record is not None and not problem:
                if (theirs := canonical(record.target)) != ours:
                    raise other_target(folder / RECORDS, theirs, ours, option="--out")
                self.measured.setdefault(record.workload, set()).add(meta_database.schedule_key(record.steps))
                self.counts[record.workload] = self.counts.get(record.workload, 0) + 1
        self._keep_threads(threads)
        names = folder / NAMES
        self.names: dict[str, Any] = orjson.loads(names.read_bytes()) if names.is_file() else {}

    def _keep_threads(self, threads: int) -> None:
        """Write down how many threads programs run on, for `build`; of older records nobody knows it."""
        path = self.folder / THREADS
        held = orjson.loads(path.read_bytes()) if path.is_file() else None
        if not threads or held == threads:
            return
        if not self.counts:
            write_json(path, threads)
        elif held is not None:
            raise LogError(
                f"its records ran on {held} threads, this run's would on {threads}: run it with the --cores, "
                "or the TVM_NUM_THREADS, of before, or collect into another --out",
                place=str(self.folder),
            )

    def line(self, mod: Any, program: Program) -> int:
        """Number of the module's line; appended if it is new."""
        from tvm.s_tir.meta_schedule.database import Workload

        row = [str(part) for part in Workload(mod).as_json()]
        self.names[row[0]] = [program.network, program.desc]
        if row[0] + row[1] not in self.lines:
            append(self.folder / WORKLOADS, row)
            self.lines[row[0] + row[1]] = self._next
            self._next += 1
        return self.lines[row[0] + row[1]]

    def write_names(self) -> None:
        """Write what the programs are called, for the dataset's labels."""
        write_json(self.folder / NAMES, self.names)

    def add(self, line: int, candidate: Any, seconds: list[float]) -> None:
        """Append one record."""
        from wmsched.metaschedule.trace_reader import described, plain, trace_json

        arguments = described(candidate.args_info)
        target = plain(self.target.export())
        append(self.folder / RECORDS, [line, [trace_json(candidate.sch.trace), seconds, target, arguments]])
        self.counts[line] = self.counts.get(line, 0) + 1


def _count(path: Path) -> int:
    if not path.exists():
        return 0
    with open(path, "rb") as stream:
        return sum(1 for _ in stream)


def _turns(
    programs: list[tuple[int, Program]],
    database: _Database,
    maker: Callable[[], Any] | None,
    options: CollectOptions,
    watch: Watch,
) -> Iterator[_Turn]:
    """A turn for each program that can be read; a word about the others."""
    for number, program in programs:
        try:
            yield _Turn(number, program, database, maker, options)
        except REFUSALS as error:
            watch.note(f"{program.desc}: left out: {str(error)[-300:]}")


class _Turn:
    """One program with its line in the database; its sampler is made when its turn first comes."""

    def __init__(
        self,
        number: int,
        program: Program,
        database: _Database,
        maker: Callable[[], Any] | None,
        options: CollectOptions,
    ) -> None:
        self.number, self.program, self.database = number, program, database
        self.maker, self.options = maker, options
        self.mod = program.module()
        self.line = database.line(self.mod, program)
        self.exhausted = False
        self._sampler: TraceSampler | None = None

    @property
    def count(self) -> int:
        return self.database.counts.get(self.line, 0)

    @property
    def wants(self) -> int:
        return 0 if self.exhausted else max(0, self.options.trials - self.count)

    def take(self, measurer: Interruptible, watch: Watch) -> tuple[int, int]:
        """Measure one batch; return how many were measured and how many of these failed."""
        if self._sampler is None:
            self._sampler = TraceSampler(
                self.mod,
                self.database.target,
                measured=self.database.measured.setdefault(self.line, set()),
                cost_model=self.maker,
                name=self.program.desc,
            )
        random_part, guided_part = self.options.mix if self.maker is not None else (1, 0)
        random_left = round(self.options.trials * random_part / (random_part + guided_part)) - self.count
        guided = random_left <= 0
        size = min(self.wants, self.options.batch, random_left if random_left > 0 else self.wants)
        seed = seed_of(f"{self.options.seed}/{self.number}/{self.count}")
        chosen = self._sampler.next(size, guided=guided, seed=seed)
        if not chosen:
            self.exhausted = True
            watch.note(f"{self.program.desc}: no new schedules after {self.count}; this program is done")
            return 0, 0
        steps = dict(zip((id(candidate) for candidate, _ in chosen), (steps for _, steps in chosen)))
        measured = failed = 0
        for candidate, seconds in measurer.measure([candidate for candidate, _ in chosen]):
            self.database.add(self.line, candidate, seconds)
            self._sampler.note(steps[id(candidate)])
            measured += 1
            bad = seconds[0] >= 1e9
            failed += bad
            watch.step()
        return measured, failed
