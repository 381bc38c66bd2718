"""`wmsched-data build`: logs into a dataset directory.

Two passes. The scan reads every log once and spools its lines by workload; then worker processes write one
workload each. Each finished workload leaves a done file in `DIR/.build`, so a build that was killed goes on
where it stopped; the manifest is written last and `.build` removed, so a directory with a manifest is
complete.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from data_builder.base.cluster import run_on_cluster
from data_builder.base.store import locked
from data_builder.base.workers import Outcome, run_jobs
from data_builder.build.manifest import BAD_LINES, finish
from data_builder.build.plan import (
    SCAN,
    SCRATCH,
    BuildOptions,
    Report,
    _again,
    _finished,
    _looks,
    _prepare,
    _refuse,
)
from data_builder.build.trajectories import Job, done_path, problems_path, write_workload
from data_builder.read.databases import databases
from data_builder.read.log_paths import STDIN, Expanded, expand
from data_builder.read.spool import read_scan, scan, write_scan, write_sources
from data_builder.read.workloads import every_row, merged
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import FORMAT_VERSION, MANIFEST
from wmsched.schedules.traces import KEY_PREFIX, is_trace_key
from wmsched.schedules.workload_file import by_key


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
        from data_builder.build.databases import build_databases  # which imports this module

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
