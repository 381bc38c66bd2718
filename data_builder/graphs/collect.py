"""Collect labels of whole graphs: build what is missing, time it, write each graph's file. Needs no TVM.

Every step is one process (`child`), and what a step leaves is whole or not there, so a run that was killed
goes on with the step that it was in.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from data_builder.graphs.job import Job
from wmsched.base.files import locked

__all__ = ["GraphOptions", "Report", "collect"]


@dataclass(frozen=True, kw_only=True)
class GraphOptions:
    """What is collected.

    Parameters
    ----------
    configurations : int
        Of each graph, refused ones included.
    rounds : int
        Turns of each configuration in a timing.
    timings : int
        Of each graph, each in a process of its own: two say how far labels repeat.
    minutes : float
        After which no further step begins; 0: no limit.
    build_only : bool
        Whether nothing is timed: building needs no quiet machine.
    time_only : bool
        Whether nothing is built.
    target : str
        TVM's; "": this machine's.
    """

    configurations: int = 48
    rounds: int = 15
    timings: int = 2
    minutes: float = 0.0
    build_only: bool = False
    time_only: bool = False
    target: str = ""


class Report(Protocol):
    """Shows progress."""

    def start(self, what: str, total: int, done: int) -> None:
        """Begin to show steps."""

    def step(self, kind: str = "ok") -> None:
        """Show a step that ended."""

    def note(self, text: str) -> None:
        """Show a line."""


def collect(names: Sequence[str], out: Path, options: GraphOptions, report: Report) -> dict[str, int]:
    """Collect graphs; numbers of those that are done, built and not timed, left out, and not begun."""
    began, jobs = time.monotonic(), [Job(out, name) for name in names]
    out.mkdir(parents=True, exist_ok=True)
    counts = {"done": 0, "built": 0, "failed": 0, "left": 0}
    with locked(out / ".lock", whose=out, option="--out"):
        report.start("graphs", len(jobs), sum(job.is_done for job in jobs))
        for job in jobs:
            kind = _collected(job, options, report, lambda: _is_over(began, options.minutes))
            if kind in ("done", "failed"):
                report.step("ok" if kind == "done" else kind)
            counts["done" if kind == "was" else kind] += 1
    return counts


def _is_over(began: float, minutes: float) -> bool:
    return bool(minutes) and time.monotonic() - began > 60 * minutes


def _collected(job: Job, options: GraphOptions, report: Report, is_over: Callable[[], bool]) -> str:
    if job.is_done:
        return "was"
    if not job.is_built:
        if options.time_only or is_over():
            return "left"
        if _step("build", job, options.configurations, options.target, report):
            return "failed"
    if options.build_only:
        return "built"
    while len(job.timings()) < options.timings:
        if is_over():
            return "built"
        if _step("time", job, options.rounds, options.target, report):
            return "failed"
    plan = job.plan()
    for why in plan.refused:
        report.note(f"{job.name}: refused: {why}")
    report.note(f"{job.name}: {job.finish()} configurations of {len(plan.options)} choices")
    return "done"


def _step(what: str, job: Job, number: int, target: str, report: Report) -> int:
    """Run one step in a process; its exit status, and its last words where that is not 0."""
    began = time.monotonic()
    command = [sys.executable, "-m", "data_builder.graphs.child", what, job.name, str(job.out), str(number)]
    run = subprocess.run([*command, target], capture_output=True, text=True)
    if run.returncode:
        said = run.stderr.strip().splitlines()[-1:] or [f"it ended with status {run.returncode}"]
        report.note(f"{job.name}: {what}: {said[0]}")
    else:
        report.note(f"{job.name}: {what}: {time.monotonic() - began:.0f} s")
    return run.returncode
