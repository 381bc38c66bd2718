"""What every build of a dataset shares: options, the plan that a resumed build is held to, and its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from data_builder.base.store import remove_partials, write_json
from data_builder.base.workers import Outcome
from data_builder.build.trajectories import Job
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import MANIFEST

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


def _refuse(failures: Sequence[str], workloads: int) -> None:
    """DatasetError if workloads could not be written."""
    if failures:
        raise DatasetError(
            f"{len(failures)} of {workloads} workloads could not be written, the first: "
            f"{failures[0]}. Mend that and run the same command again: it goes on with these"
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
