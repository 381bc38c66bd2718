"""`wmsched-data build` of MetaSchedule databases: the same dataset, by the same two passes.

The scan reads each record once and sorts it to its workload, which is a program on a target: programs that
differ in names alone are one. Worker processes then write a workload each. It resumes as the other build
does.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from data_builder.base.replay import TVM_REFUSES, last_line
from data_builder.base.store import locked
from data_builder.base.workers import run_jobs
from data_builder.build.manifest import BAD_LINES, finish
from data_builder.build.plan import SCAN, SCRATCH, BuildOptions, Report, _again, _finished, _prepare, _refuse
from data_builder.build.trace_replay import module_of
from data_builder.build.trace_writing import MetaJob, write_workload
from data_builder.build.trajectories import done_path, problems_path
from data_builder.read.databases import (
    RECORDS,
    THREADS,
    WORKLOADS,
    MetaRecord,
    databases,
    parse_line,
    read_modules,
    stored,
)
from data_builder.read.log_reader import LogReader
from data_builder.read.spool import read_scan, write_scan
from wmsched.base.errors import DatasetError, LogError, WmschedError
from wmsched.features.hardware import hardware_parameters, run_threads
from wmsched.features.target_options import is_gpu
from wmsched.learn.data.dataset import FORMAT_VERSION, MANIFEST, group_id
from wmsched.schedules.types import Workload
from wmsched.toolchain.resolve import meta_schedule_tvm
from wmsched.tune import folder as tuned_folder

NAMES = "names.json"  # beside a database that `collect` wrote: network and description by module hash


def build_databases(paths: Sequence[str], out: Path, options: BuildOptions, report: Report) -> dict[str, Any]:
    """Build a dataset of MetaSchedule databases, or go on with one that was stopped.

    Parameters
    ----------
    paths : sequence of str
        Folders with databases.
    out : Path
        The dataset directory.
    options : BuildOptions
        `workloads` is not needed: a database has its programs. `build` has refused what is for logs only.
    report : Report

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    DatasetError
        `out` holds something else, no record is good, or a workload could not be written.
    EnvironmentProblem
        There is no TVM with MetaSchedule.
    """
    meta_schedule_tvm()
    folders = databases(paths)
    plan = _plan(folders, options)
    scratch = out / SCRATCH
    with locked(out):
        if (out / MANIFEST).exists():
            return _finished(out, plan, report)
        _prepare(out, plan, report)
        path = scratch / SCAN
        if path.exists():
            scanned = read_scan(path)
        else:
            report.start("reading databases", len(folders), 0)
            scanned = _scan(folders, scratch, options.exclude, report)
            write_scan(path, scanned)
        if not scanned["workloads"]:
            lines = sum(source["lines"] for source in scanned["sources"])
            raise DatasetError(f"{lines} lines in {len(folders)} databases, none of them a record to be kept")
        failures = _write(scanned, out, options, report)
        _refuse(failures, len(scanned["workloads"]))
        return finish(scanned, plan, out, scratch)


def _plan(folders: Sequence[Path], options: BuildOptions) -> str:
    sources: list[Any] = []
    for folder in folders:
        for name in (WORKLOADS, RECORDS):
            file = stored(folder, name)
            stat = file.stat()
            sources.append([str(file), stat.st_size, stat.st_mtime_ns])
    whole = [FORMAT_VERSION, "meta", sources, options.states_per_workload, sorted(options.exclude)]
    return hashlib.sha256(orjson.dumps(whole)).hexdigest()


class _Programs:
    """The workloads of one database: their keys, found when a record first names them."""

    def __init__(self, folder: Path) -> None:
        self.rows = read_modules(folder)
        self.threads = threads_of(folder)
        # what is wrong with one is kept, too, and not found out anew for each record
        self._keys: dict[tuple[int, str], tuple[str, str, int] | WmschedError] = {}
        self._modules: dict[int, Any] = {}
        names = folder / NAMES
        self.names: dict[str, list[str]] = orjson.loads(names.read_bytes()) if names.is_file() else {}

    def key(self, record: MetaRecord) -> tuple[str, str, int, str]:
        """(group id, workload key, threads, target) of a record; WmschedError where its workload is none."""
        target = canonical(record.target)
        place = (record.workload, target)
        if place not in self._keys:
            if record.workload not in self.rows:
                raise LogError(f"{WORKLOADS} has no good line {record.workload}")
            try:
                self._keys[place] = self._key(record.workload, target)
            except WmschedError as error:
                self._keys[place] = error
        found = self._keys[place]
        if isinstance(found, WmschedError):
            raise found
        return (*found, target)

    def _key(self, workload: int, target: str) -> tuple[str, str, int]:
        from wmsched.metaschedule.workload import workload_of

        if workload not in self._modules:
            try:
                self._modules[workload] = module_of(self.rows[workload])
            except WmschedError as error:
                self._modules[workload] = error
        module = self._modules[workload]
        if isinstance(module, WmschedError):
            raise module
        try:
            key = workload_of(module, target).key
        except TVM_REFUSES as error:
            raise WmschedError(f"its module is no program to tune: {last_line(error)}") from error
        hardware = hardware_parameters(target)
        # said of a processor, and only where it is not what the target says
        told = Workload(key, target, hardware, threads=self.threads)
        plain = is_gpu(target) or run_threads(told) == run_threads(replace(told, threads=0))
        threads = 0 if plain else self.threads
        return group_id(key, target, hardware, threads), key, threads


def threads_of(folder: Path) -> int:
    """How many threads a folder's programs ran on; 0 where none says.

    `wmsched tune` runs a model's on one for each core, `wmsched-data collect` on those of `--cores` or on as
    many as TVM takes: a target says neither.
    """
    try:
        collected = orjson.loads((folder / THREADS).read_bytes())
    except (OSError, ValueError):
        collected = None
    whose = folder.parent if folder.name == tuned_folder.BEST else folder  # the chosen ones, in the other's
    tuned = (tuned_folder.about_of(whose) or {}).get("threads")
    return next((held for held in (collected, tuned) if type(held) is int and held > 0), 0)


def canonical(target: Mapping[str, Any]) -> str:
    """A record's target as a search names it: TVM fills in what a shortened one leaves out."""
    return _canonical(orjson.dumps(target))


@functools.lru_cache(maxsize=1024)
def _canonical(written: bytes) -> str:
    from tvm.target import Target

    from wmsched.toolchain.targets import target_text

    target = orjson.loads(written)
    try:
        return target_text(Target(target) if target else target)
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError):  # of another TVM
        return target_text(target)


def _scan(folders: Sequence[Path], scratch: Path, exclude: frozenset[str], report: Report) -> dict[str, Any]:
    """Sort the good lines of every database to files by workload."""
    spool = scratch / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    for old in spool.glob("*.jsonl"):
        old.unlink()
    found: list[dict[str, Any]] = []
    workloads: dict[str, dict[str, Any]] = {}
    with open(scratch / BAD_LINES, "w", encoding="utf-8", errors="replace") as told:
        for index, folder in enumerate(folders):
            programs = _Programs(folder)
            reader = LogReader(str(stored(folder, RECORDS)))
            bad = excluded = 0
            for line in reader:
                reason = line.problem
                if not reason:
                    try:
                        record = parse_line(line.data)
                        name, key, threads, target = programs.key(record)
                        if key in exclude:
                            excluded += 1
                            continue
                        row = programs.rows[record.workload]
                        names = programs.names.get(row[0], ["", ""])
                        entry = {"key": key, "count": 0, "target": target, "module": row, "names": names}
                        entry["threads"] = threads
                        workloads.setdefault(name, entry)["count"] += 1
                        with open(spool / f"{name}.jsonl", "ab") as stream:
                            stream.write(b"%d %d %s\n" % (index, line.number, line.data))
                    except LogError as error:
                        reason = error.reason
                    except WmschedError as error:
                        reason = str(error)
                if reason:
                    bad += 1
                    told.write(f"{line.place}: {reason}".replace("\n", " ") + "\n")
                    report.problem(f"{line.place}: {reason}")
            counts = {"lines": reader.lines, "bad": bad, "excluded": excluded}
            found.append({"path": str(stored(folder, RECORDS)), "sha256": reader.sha256, **counts})
            report.step()
    return {"sources": found, "workloads": workloads}


def _write(scanned: dict[str, Any], out: Path, options: BuildOptions, report: Report) -> list[str]:
    """Write the workloads that are not done; return what failed."""
    scratch, workloads = out / SCRATCH, scanned["workloads"]
    missing = [name for name in sorted(workloads) if not done_path(scratch, name).exists()]
    report.start("replaying workloads", len(workloads), len(workloads) - len(missing))
    sources = tuple(source["path"] for source in scanned["sources"])
    jobs = [
        MetaJob(
            workload_id=name,
            count=workloads[name]["count"],
            module=workloads[name]["module"],
            lines=scratch / "spool" / f"{name}.jsonl",
            target=workloads[name]["target"],
            threads=workloads[name]["threads"],
            sources=sources,
            names=tuple(workloads[name]["names"][:2]),  # type: ignore[arg-type]
            out=out,
            scratch=scratch,
            states_per_workload=options.states_per_workload,
        )
        for name in sorted(missing, key=lambda name: -workloads[name]["count"])
    ]
    failures: list[str] = []
    outcomes = run_jobs(
        jobs,
        write_workload,
        processes=options.jobs,
        again=_again(report),  # type: ignore[arg-type]
        stall_seconds=options.stall_seconds,
    )
    for outcome in outcomes:
        if outcome.kind == "done":
            with open(problems_path(scratch, outcome.job.workload_id), encoding="utf-8") as problems:
                for line in problems:
                    report.problem(line.rstrip("\n"))
            report.step()
        elif outcome.kind == "died" and outcome.position < 0 and not outcome.job.again:
            continue  # it is tried again
        elif outcome.kind == "failed" or not outcome.job.replay:
            failures.append(f"workload {outcome.job.workload_id}: {outcome.why}")
            report.problem(failures[-1])
    return failures
