"""One invocation of the benchmark: runs, result lines, and the second measurement of the best schedules."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine, methods
from benchmarks.methods import Settings
from benchmarks.outcomes.outcomes import WRONG
from benchmarks.plan import Results, Run
from benchmarks.tune import again, child, fallback, simulate

START_SECONDS = 300.0  # of a run's time limit: imports, loading a model, fitting an uncached `tenset`
TRIAL_SECONDS = 20.0  # added for each trial
FIT_SECONDS = 3600.0  # added for methods that are fitted first


@dataclass(slots=True)
class Bench:
    """One invocation: what is asked for, and the results file it goes to."""

    options: argparse.Namespace
    results: Results
    console: Console
    tasks: dict[str, dict[str, Any]]
    exclude: tuple[str, ...]
    simulate: str = ""  # what MetaSchedule's made-up machine is made of
    bundles: dict[str, Path] = field(default_factory=dict)
    fingerprints: dict[str, str | None] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where logs and outputs of the children go: beside the results file, under its name."""
        return self.results.path.with_suffix("")

    def settings(self, run: Run) -> Settings:
        return Settings(
            seed=run.seed,
            round_size=run.round_size,
            bundle=str(self.bundles.get(run.method, "")),
            training=tuple(self.options.training),
            workloads=tuple(self.options.workloads),
            exclude=self.exclude,
            cache=self.options.cache,
        )

    def line(self, run: Run, outcome: dict[str, Any]) -> dict[str, Any]:
        """The result line of a run."""
        row = self.tasks[run.task]
        bundle = self.bundles.get(run.method)
        return {
            "kind": "run",
            **run.fields(),
            **{name: row.get(name) for name in ("type", "model", "weight", "workload_key", "flop_ct")},
            "bundle": bundle.name if bundle else None,
            "fingerprint": self.fingerprints[run.method],
            "log": None if outcome.get("simulated") else f"{self.folder.name}/{run.slug}.json",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **machine.describe(),
            **outcome,
        }

    def tune(self, run: Run) -> dict[str, Any]:
        """Carry out one run in a child process."""
        spec = {
            **run.fields(),
            "row": self.tasks[run.task],
            "target": self.options.target,
            "settings": asdict(self.settings(run)),
            "log": str((self.folder / f"{run.slug}.json").resolve()),
            "simulate": self.simulate,
            "keep_workers": self.options.keep_workers,
            "places": self.options.places,
            "alone": self.options.alone,
            "emulated_threads": self.options.emulate_threads,
            "before": self.target_before(run),
            "parcel": self.options.parcel and str(Path(self.options.parcel).resolve()),
        }
        limit = self.options.timeout or START_SECONDS + TRIAL_SECONDS * run.budget
        if methods.split(run.method)[0] in methods.FITTED:
            limit += FIT_SECONDS
        module = (
            "benchmarks.tune.meta.tuning" if run.method.startswith(methods.META) else "benchmarks.tune.tuning"
        )
        output = self.folder / f"{run.slug}.out"
        return child.call(module, spec, timeout=limit, output=output, steady=True)

    def target_before(self, run: Run) -> str:
        """The target that the file's earlier runs of the same search were compiled for; "" without any."""
        meta = run.method.startswith(methods.META)
        return next(
            (
                str(line["target"])
                for other, line in self.results.done().items()
                if other.method.startswith(methods.META) == meta and line.get("target")
            ),
            "",
        )

    def remeasure(self, task: str) -> None:
        """Measure the best schedules of all of a task's runs again, if any of them has not been yet.

        All of them, those of earlier invocations too: only what was measured in turn can be compared. The two
        searches need a TVM of their own each, so theirs are measured apart.
        """
        for meta in (False, True):
            self._remeasure(task, meta=meta)

    def _remeasure(self, task: str, *, meta: bool) -> None:
        done = self.results.done(self.fingerprints)
        runs = sorted(run for run in done if run.task == task and run.method.startswith(methods.META) == meta)
        records = [done[run]["best_record"] for run in runs]
        before = self.results.remeasured()
        settled = all(_settled(before.get(run, {}), record) for run, record in zip(runs, records))
        if settled and not (self.options.again and runs):
            return
        self.console.print(
            f"{task}: measuring {len(runs)} schedules again, {self.options.rounds} times, in turn, "
            f"in {self.options.processes} processes"
        )
        spec = {
            "row": self.tasks[task],
            "target": self.options.target,
            "records": records,
            "vector_math": [bool(done[run].get("vector_math")) for run in runs],
            "rounds": self.options.rounds,
            "emulated_threads": self.options.emulate_threads,
        }
        slug = "".join(c if c.isalnum() or c in "-_." else "-" for c in task)

        def measured() -> dict[str, Any]:
            return again.measure(
                "benchmarks.tune.meta.remeasure" if meta else "benchmarks.tune.remeasure",
                spec,
                processes=self.options.processes,
                timeout=self.options.timeout or START_SECONDS + 5.0 * len(runs) * self.options.rounds,
                output=self.folder / f"{slug}__{methods.META if meta else ''}remeasure.out",
            )

        outcome = measured()
        tried: list[list[str]] = [[record] for record in records]
        while wrong := [
            k
            for k, entry in enumerate(outcome.get("entries", []))
            # what stands in for a wrong one has to do so, whatever else is the matter with it
            if "error" in entry and (WRONG in entry["error"] or len(tried[k]) > 1)
        ]:
            # a user who looks takes the next best: all are timed anew, in turn with it
            others = {
                k: fallback.after(self.results.path.parent / str(done[runs[k]].get("log")), tried[k])
                for k in wrong
            }
            if not any(others.values()):
                break
            for k, other in others.items():
                if other is not None:
                    tried[k].append(other)
            spec["records"] = [own[-1] for own in tried]
            self.console.print(f"{task}: {len(wrong)} compute something else: the next best in their place")
            outcome = measured()
        for run, own, entry in zip(runs, tried, outcome.get("entries", [])):
            entry.update(run.fields(), record=own[-1])
            if len(own) > 1 or WRONG in entry.get("error", ""):
                entry["instead_of"] = own[0]  # or of nothing: it is not to be tried again
        line = {"kind": "remeasure", "task": task, **machine.describe(), **outcome}
        self.results.append(line)
        if line["status"] != "ok":
            self.console.print(f"[red]{task}: second measurement failed[/red]: {line['error']}", markup=True)

    def go(self, runs: list[Run], recorded: dict[str, Any] | None) -> int:
        """Do what is not done yet; the number of runs that failed."""
        done = self.results.done(self.fingerprints)
        todo = [run for run in runs if run not in done]
        self.console.print(
            f"{len(runs)} runs, {len(runs) - len(todo)} of them done before: {self.results.path}"
        )
        started, trials = time.monotonic(), 0
        total = sum(run.budget for run in todo)
        failed = 0
        for task in dict.fromkeys(run.task for run in runs):
            for run in [run for run in todo if run.task == task]:
                began = time.monotonic()
                if recorded is None:
                    outcome = self.tune(run)
                else:
                    outcome = simulate.simulate(run, recorded[task], self.settings(run))
                self.results.append(self.line(run, outcome))
                trials += run.budget
                left = (time.monotonic() - started) / trials * (total - trials)
                ok = outcome["status"] == "ok"
                failed += not ok
                what = _found(outcome) if ok else f"{outcome['status']}: {outcome['error']}"
                self.console.print(
                    f"{run.task} {run.method} {run.budget} trials, seed {run.seed}: {what} "
                    f"({time.monotonic() - began:.0f} s; about {left / 60:.0f} min left)",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
            if recorded is None and not self.simulate and not self.options.parcel:
                self.remeasure(task)
        return failed


def _settled(entry: dict[str, Any], record: str) -> bool:
    """Whether a run's best schedule has been measured again, or one in its place."""
    if entry.get("instead_of") == record:
        return True
    return entry.get("record") == record and WRONG not in entry.get("error", "")


def _found(outcome: dict[str, Any]) -> str:
    if outcome.get("deferred"):
        return f"{len(outcome['proposed'])} programs to time"
    return f"{outcome['best_seconds'] * 1e3:.4f} ms"
