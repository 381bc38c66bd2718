"""`wmsched-data build`: logs into a dataset directory.

Two passes. The scan reads every log once and spools its lines by workload; then worker processes write one
workload each. Each finished workload leaves a done file in `DIR/.build`, so a build that was killed goes on
where it stopped; the manifest is written last and `.build` removed, so a directory with a manifest is
complete.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import orjson

from data_builder.build.cluster import run_on_cluster
from data_builder.build.manifest import BAD_LINES, finish
from data_builder.build.store import locked, remove_partials, write_json
from data_builder.build.trajectories import Job, done_path, problems_path, write_workload
from data_builder.build.workers import Outcome, run_jobs
from data_builder.metaschedule.database import databases
from data_builder.read.log_reader import STDIN, Expanded, expand
from data_builder.read.spool import read_scan, scan, write_scan, write_sources
from data_builder.read.workloads import every_row, merged
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import FORMAT_VERSION, MANIFEST
from wmsched.schedules.traces import KEY_PREFIX, is_trace_key
from wmsched.schedules.workload_file import by_key

SCRATCH = ".build"
SCAN = "scan.json"  # in it: the logs have been read


class Report(Protocol):
    """What the build tells whoever watches it."""

    def problem(self, text: str) -> None:
        """One bad line: `file:line: reason`."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def start(self, what: str, total: int, done: int) -> None:
        """A phase begins; `done` of `total` are there already."""

    def step(self) -> None:
        """One more of them is done."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What a build is made of; another set of these is another dataset.

    Attributes
    ----------
    states_per_workload : int
        How many records of each workload have their states kept, spread evenly over its log; 0 for all. The
        rest keep actions and measurement.
    dask : str
        Address of a Dask scheduler whose workers do the replay; they see the same files under the same paths.
        For AutoScheduler's logs only, as `drop_aliased` is.
    exclude : frozenset of str
        Keys of workloads to leave out, such as those that a benchmark is going to be run on. Of databases
        these are MetaSchedule's keys, which the zoo has of its representatives.
    drop_aliased : bool
        Leave out records of programs that the TVM that measured them may have compiled wrong; see `aliasing`.
    """

    workloads: Path | None = None
    states_per_workload: int = 12
    jobs: int = 2
    stall_seconds: float = 300.0
    dask: str = ""
    exclude: frozenset[str] = frozenset()
    drop_aliased: bool = False


def build(logs: Sequence[str], out: Path, options: BuildOptions, report: Report) -> dict[str, Any]:
    """Build a dataset, or go on with one that was stopped.

    Parameters
    ----------
    logs : sequence of str
        Files, directories, or `-`.
    out : Path
        The dataset directory.
    options : BuildOptions
    report : Report

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    DatasetError
        `out` holds something else, a workload could not be written (a full disk, say), or an option is none
        for databases.
    LogError
        A path does not exist, or is not UTF-8.
    """
    if databases(logs):
        _refuse_ansors(options, report)
        from data_builder.metaschedule.build import build_databases  # which imports this module

        return build_databases(logs, out, options, report)
    expanded = expand(logs, skip=[out, *([options.workloads] if options.workloads else [])])
    if not expanded.logs:
        raise DatasetError(
            f"no logs in {', '.join(logs)}: names end in .json, .jsonl, .log or .tar, "
            "or these with .gz or .zst"
        )
    rows = by_key(merged(every_row(options.workloads))) if options.workloads else {}
    plan = _plan(expanded, options)
    scratch = out / SCRATCH
    with locked(out):
        if STDIN in expanded.logs:
            _refuse_another_stdin(out)
        if (out / MANIFEST).exists():
            return _finished(out, plan, report)
        _prepare(out, plan, report)
        if expanded.ignored:
            report.note(
                f"{len(expanded.ignored)} files that are no logs left out, the first {expanded.ignored[0]}"
            )
        scanned = _scanned(expanded.logs, scratch, options.exclude, report)
        if not scanned["workloads"]:
            raise DatasetError(_nothing(scanned))
        failures = _write_workloads(scanned, rows, out, options, report)
        _refuse(failures, len(scanned["workloads"]))
        manifest = finish(scanned, plan, out, scratch)
    return manifest


def _refuse_ansors(options: BuildOptions, report: Report) -> None:
    """DatasetError if an option is for AutoScheduler's logs and would do nothing to databases; a note of what
    does nothing in part.
    """
    if options.drop_aliased:
        raise DatasetError("--drop-aliased is for AutoScheduler's logs; databases of MetaSchedule need none")
    if options.dask:
        raise DatasetError(
            "--dask is for AutoScheduler's logs; databases of MetaSchedule are replayed on this machine, by "
            "the worker processes of --jobs"
        )
    strange = sorted(key for key in options.exclude if not is_trace_key(key))
    if not strange:
        return
    why = (
        f"--exclude has {len(strange)} keys of AutoScheduler's workloads, the first {strange[0][:60]}: they "
        f"leave nothing out of databases of MetaSchedule, whose keys begin with {KEY_PREFIX}"
    )
    if len(strange) == len(options.exclude):
        raise DatasetError(f"{why}. Give a file of rows with such a workload_key, 'zoo', or exclude nothing")
    report.note(f"{why}; {len(options.exclude) - len(strange)} others do")


def _refuse(failures: Sequence[str], workloads: int) -> None:
    """DatasetError if workloads could not be written."""
    if failures:
        raise DatasetError(
            f"{len(failures)} of {workloads} workloads could not be written, the first: "
            f"{failures[0]}. Mend that and run the same command again: it goes on with these"
        )


def _nothing(scanned: Mapping[str, Any]) -> str:
    sources = scanned["sources"]
    lines, excluded = (sum(source[part] for source in sources) for part in ("lines", "excluded"))
    why = f"{excluded} of them of excluded workloads and " if excluded else ""
    return (
        f"{lines} lines, {why}none of them a record that is to be kept; "
        f"are {sources[0]['path']} and its like AutoScheduler logs?"
    )


def _plan(expanded: Expanded, options: BuildOptions) -> str:
    """Hash of what must be equal for a stopped build to be gone on with."""
    sources = []
    for path in expanded.logs:
        stat = None if path == STDIN else Path(path).stat()
        sources.append([path, stat.st_size if stat else 0, stat.st_mtime_ns if stat else 0])
    workloads = hashlib.sha256(options.workloads.read_bytes()).hexdigest() if options.workloads else ""
    whole = [FORMAT_VERSION, sources, workloads, options.states_per_workload, sorted(options.exclude)]
    if options.drop_aliased:
        whole.append("drop aliased")
    return hashlib.sha256(orjson.dumps(whole)).hexdigest()


def _refuse_another_stdin(out: Path) -> None:
    """DatasetError if logs have been read into `out`: a file is known by size and time, this has neither."""
    if (out / MANIFEST).exists() or (out / SCRATCH / SCAN).exists():
        raise DatasetError(
            f"{out} holds what an earlier build has read, and whether standard input is the same again "
            f"cannot be told: choose another --out, or remove {out}"
        )


def _finished(out: Path, plan: str, report: Report) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((out / MANIFEST).read_bytes())
    if manifest.get("plan") != plan:
        raise DatasetError(
            f"{out} holds a dataset made of other logs or with other options; choose another --out"
        )
    shutil.rmtree(out / SCRATCH, ignore_errors=True)  # a kill between the manifest and this leaves it
    report.note(f"{out} is complete already; nothing to do")
    return manifest


def _prepare(out: Path, plan: str, report: Report) -> None:
    scratch = out / SCRATCH
    path = scratch / "plan.json"
    if path.exists():
        if json.loads(path.read_bytes()) != plan:
            raise DatasetError(
                f"{out} holds an unfinished build of other logs or with other options; "
                "choose another --out, or remove it"
            )
        report.note(f"going on with the build in {out}")
    elif any(entry.name not in (".lock", SCRATCH) for entry in out.iterdir()):
        raise DatasetError(f"{out} is not empty and holds no build; choose another --out")
    else:
        write_json(path, plan)
    remove_partials(out)


def _scanned(logs: tuple[str, ...], scratch: Path, exclude: frozenset[str], report: Report) -> dict[str, Any]:
    """The scan's result; from the last time, if that scan finished."""
    path = scratch / SCAN
    if path.exists():
        return read_scan(path)
    shutil.rmtree(scratch / "spool", ignore_errors=True)
    report.start("reading logs", len(logs), 0)
    scratch.mkdir(parents=True, exist_ok=True)
    with open(scratch / BAD_LINES, "w", encoding="utf-8", errors="replace") as bad:

        def problem(text: str) -> None:
            bad.write(text.replace("\n", " ") + "\n")
            report.problem(text)

        result = scan(
            logs, scratch, exclude=exclude, on_problem=problem, on_source=lambda source: report.step()
        )
    write_scan(path, result)
    return result


def _write_workloads(
    scanned: Mapping[str, Any],
    rows: Mapping[str, Mapping[str, Any]],
    out: Path,
    options: BuildOptions,
    report: Report,
) -> list[str]:
    """Write the workloads that are not done; return what failed."""
    scratch = out / SCRATCH
    workloads = scanned["workloads"]
    missing = [name for name in sorted(workloads) if not done_path(scratch, name).exists()]
    unknown = sum(1 for entry in workloads.values() if entry["key"] not in rows)
    if unknown:
        report.note(
            f"{unknown} of {len(workloads)} workloads have no compute DAG in --workloads: "
            "their records are kept with actions and times, without states. Where the model is at hand, "
            "extract its tasks with the TVM that wrote the logs: a key is a hash of how that prints the DAG"
        )
    report.start("replaying workloads", len(workloads), len(workloads) - len(missing))
    write_sources(scratch, [entry["path"] for entry in scanned["sources"]])
    jobs = [
        Job(
            workload_id=name,
            count=workloads[name]["count"],
            row=rows.get(workloads[name]["key"]),
            out=out.resolve(),
            scratch=scratch.resolve(),
            base=Path.cwd(),
            states_per_workload=options.states_per_workload,
            drop_aliased=options.drop_aliased,
        )
        for name in sorted(missing, key=lambda name: -workloads[name]["count"])  # the long ones first
    ]
    failures = []
    outcomes: Iterator[Outcome[Job]]
    if options.dask:
        outcomes = run_on_cluster(options.dask, jobs, write_workload, again=_again(report))
    else:
        outcomes = run_jobs(
            jobs,
            write_workload,
            processes=options.jobs,
            again=_again(report),
            stall_seconds=options.stall_seconds,
        )
    for outcome in outcomes:
        if outcome.kind == "done":
            with open(problems_path(scratch, outcome.job.workload_id), encoding="utf-8") as problems:
                for line in problems:
                    report.problem(line.rstrip("\n"))
            report.step()
        elif outcome.kind == "failed":
            failures.append(f"workload {outcome.job.workload_id}: {outcome.why}")
            report.problem(failures[-1])
        elif outcome.position < 0 and not outcome.job.again:
            continue  # it is tried again
        elif not (outcome.job.replay or _looks(outcome.job)):  # given up
            failures.append(
                f"workload {outcome.job.workload_id}: {outcome.why} at {outcome.place or 'its start'}"
            )
    return failures


def _again(report: Report) -> Callable[[Outcome[Job]], Job | None]:
    """What to do after a worker's death.

    Once more, if it had not begun; once more without the record that it died of; then without replay; then
    without lowering schedules either, where `drop_aliased` has that done; then give up.
    """

    def again(outcome: Outcome[Job]) -> Job | None:
        job = outcome.job
        where = outcome.place or "its start"
        known = outcome.position >= 0
        skip = (*job.skip, outcome.position) if known else job.skip
        follow: Job | None
        if (
            not known and not job.again
        ):  # killed before it began, as an idle worker may be: by no record of it
            remedy, follow = "tried again", replace(job, again=True)
        elif job.replay and known and not job.skip:
            remedy = "tried again without this record" + ("" if _looks(job) else "'s states")
            follow = replace(job, skip=skip)
        elif job.replay:
            remedy, follow = "its records are kept without states", replace(job, replay=False, skip=skip)
        elif _looks(job):
            remedy = "its records are left out: none could be looked at for what TVM compiled wrong"
            follow = replace(job, lower=False)
        else:
            remedy, follow = "given up", None
        report.problem(f"workload {job.workload_id}: {outcome.why} at {where}; {remedy}")
        return follow

    return again


def _looks(job: Job) -> bool:
    """Whether a job's schedules are lowered for `drop_aliased`; MetaSchedule's jobs know nothing of it."""
    return bool(getattr(job, "looks", False))
