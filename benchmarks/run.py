"""`python -m benchmarks.run`: tune tasks with several methods, measure the best again, print the table.

    python -m benchmarks.run --tasks representatives --methods ansor,random,wmsched --budgets 16,64 \\
        --seeds 0,1,2 --bundle x86-avx512 --out benchmarks/results/cpu.jsonl

Every run is one line of the results file. Start the same command again after a kill and it goes on where it
was.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import leak, machine, methods, records
from benchmarks.methods import Settings
from benchmarks.options import parser
from benchmarks.outcomes.outcomes import WRONG, on_gpu
from benchmarks.plan import Results, Run, plan
from benchmarks.report import report
from benchmarks.tune import again, child, fallback, simulate
from wmsched import zoo
from wmsched.base.cores import THREADS, named_threads, tvm_threads
from wmsched.base.errors import BundleError, WmschedError

SHIPPED = Path(zoo.__file__).parents[1] / "bundles"
START_SECONDS = (
    300.0  # of a run's time limit: imports, loading a model, fitting `tenset` where it is not cached
)
TRIAL_SECONDS = 20.0  # and for each trial
FIT_SECONDS = 3600.0


def bundle_folder(name: str) -> Path:
    """The folder of a bundle given by its folder or its shipped name. BundleError if there is none."""
    for folder in (Path(name), SHIPPED / name):
        if (folder / "config.json").is_file():
            return folder
    shipped = sorted(p.name for p in SHIPPED.iterdir() if p.is_dir()) if SHIPPED.is_dir() else []
    raise BundleError(
        f"no bundle {name!r}: give a folder with a config.json or one of {', '.join(shipped) or '(none)'}"
    )


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


def _markdown(results: Results) -> str:
    try:
        return report.markdown(results.lines)
    except ValueError as error:  # what the file has of earlier is no report together with this
        return f"{results.path}: {error}"


def _found(outcome: dict[str, Any]) -> str:
    if outcome.get("deferred"):
        return f"{len(outcome['proposed'])} programs to time"
    return f"{outcome['best_seconds'] * 1e3:.4f} ms"


def prepare(options: argparse.Namespace, console: Console) -> tuple[Bench, list[Run], dict[str, Any] | None]:
    """Look up tasks, methods and bundles; refuse what cannot be run honestly before anything is run."""
    budgets = [int(text) for text in options.budgets.split(",")]
    recorded = None
    simulate_meta = _simulate_meta(options)
    scripts = [text for text in options.methods.split(",") if methods.kin(text).endswith(methods.SCRIPT)]
    if options.simulate and scripts:
        raise WmschedError(
            f"{scripts[0]} is a whole script, which cannot be simulated: leave it out, or --simulate"
        )
    if options.simulate and not simulate_meta:
        recorded = simulate.load(options.simulate, least=options.least)
        wanted = list(recorded) if options.tasks in ("", "all") else options.tasks.split(",")
        unknown = [name for name in wanted if name not in recorded]
        if unknown:
            raise WmschedError(
                f"no recorded task {', '.join(unknown)}; there are {', '.join(list(recorded)[:8])}, ..."
            )
        tasks = {
            name: {"name": name, "workload_key": recorded[name].key, "type": "", "model": "", "weight": 1}
            for name in wanted
        }
    else:
        names = options.tasks or "representatives"
        tasks = {row["name"]: row for name in names.split(",") for row in zoo.find(name)}
    # what no method may have learned from
    exclude = tuple(key for row in zoo.rows() for key in zoo.keys(row))
    bench = Bench(options, Results(options.out), console, tasks, exclude, simulate_meta)
    if not options.simulate:
        _check_processor(bench.results, options.emulate_threads)
        _check_places(bench.results, options)
    if options.emulate_threads:
        _check_emulation(options)
    labels = []
    for text in options.methods.split(","):
        name, bundle = methods.split(text)
        label = text
        if name.startswith(methods.META):
            _check_meta(name, tasks)
        if name in methods.NEED_BUNDLE:
            if not (bundle or options.bundle):
                raise WmschedError(f"{name} needs a world model: give --bundle, or {name}@FOLDER")
            folder = bundle_folder(bundle or options.bundle)
            label = f"{name}@{folder.name}" if bundle else name
            fingerprint = leak.read_fingerprint(folder)
            leak.check(fingerprint, list(tasks.values()), model=f"the bundle {folder.name}")
            bench.bundles[label] = folder
            bench.fingerprints[label] = leak.bundle_digest(folder)
        elif name in methods.FITTED:  # to these logs, whatever others an earlier run had
            made_of = [*records.log_files(options.training), *map(Path, options.workloads)]
            bench.fingerprints[label] = records.digest(made_of, exclude)
        else:
            bench.fingerprints[label] = None
        labels.append(label)
    if min(options.rounds, options.processes) < 1:
        raise ValueError(f"--rounds {options.rounds} and --processes {options.processes} must be at least 1")
    seeds = [int(text) for text in options.seeds.split(",")]
    runs = plan(list(tasks), labels, budgets, seeds, round_size=options.round_size)
    if options.parcel:
        _check_parcel(options, runs)
    return bench, runs, recorded


def _check_parcel(options: argparse.Namespace, runs: list[Run]) -> None:
    """Refuse what cannot be timed later on another machine."""
    from benchmarks.tune.meta import deferred

    fit = [run for run in runs if methods.kin(run.method) in (methods.META, methods.SCRIPT)]
    if len(fit) < len(runs) or options.simulate or not options.target:
        raise WmschedError(
            "--parcel is for MetaSchedule's methods and AutoScheduler's scripts, with the other machine's "
            "--target"
        )
    deferred.check(runs)


def _check_emulation(options: argparse.Namespace) -> None:
    """Refuse what cannot be timed as on another number of cores."""
    if options.emulate_threads < 0:
        raise ValueError(f"--emulate-threads {options.emulate_threads}: at least 1, or 0 for this machine's")
    for text in options.methods.split(","):
        if methods.kin(text) or options.simulate:
            raise WmschedError(
                f"{text} cannot be timed as on {options.emulate_threads} cores: --emulate-threads is for "
                "AutoScheduler's searches, not for scripts, MetaSchedule or --simulate"
            )


def _settled(entry: dict[str, Any], record: str) -> bool:
    """Whether a run's best schedule has been measured again, or one in its place."""
    if entry.get("instead_of") == record:
        return True
    return entry.get("record") == record and WRONG not in entry.get("error", "")


def _check_processor(results: Results, threads: int = 0) -> None:
    """Refuse to go on with another machine's lines: they would count as done beside this one's."""
    here = machine.describe()["cpu"]
    for line in results.done().values():
        if int(line.get("emulated_threads", 0)) != threads:
            raise WmschedError(
                f"{results.path} has runs with --emulate-threads {int(line.get('emulated_threads', 0))}, and "
                f"this one has {threads}: give another --out"
            )
        if line.get("simulated"):
            continue
        if line.get("cpu", here) != here:
            raise WmschedError(
                f"{results.path} has runs of another processor, {line['cpu']} (this one is {here}): "
                "give another --out"
            )
        ran, now = line.get("threads"), named_threads(os.environ)
        if (
            isinstance(ran, int)
            and ran not in (now, tvm_threads(os.environ))
            and not (threads or line.get("deferred"))
        ):
            raise WmschedError(
                f"{results.path} has runs on {ran} threads, and programs would run on {now} now: set "
                f"{THREADS}={ran}, or give another --out"
            )


def _check_places(results: Results, options: argparse.Namespace) -> None:
    """Refuse to go on with searches that timed candidates otherwise; scripts do that in ways of their own."""
    now = options.places, options.places > 1 and not options.alone
    for line in results.lines:
        if line["kind"] != "run" or "places" not in line or line.get("simulated") or line.get("deferred"):
            continue
        if methods.kin(line["method"]).endswith(methods.SCRIPT) or on_gpu(line):
            continue
        before = int(line["places"]), bool(line.get("paired"))
        if before != now:
            how = f"--places {before[0]}" + (" --alone" if before[0] > 1 and not before[1] else "")
            raise WmschedError(f"{results.path} has runs with {how}: say the same, or give another --out")


def _simulate_meta(options: argparse.Namespace) -> str:
    """What a made-up machine for MetaSchedule's own search is made of; "" where there is none.

    AutoScheduler's methods choose among recorded programs instead, so the two cannot share a run.
    """
    names = [methods.split(text)[0] for text in options.methods.split(",")]
    meta = [name for name in names if name.startswith(methods.META)]
    if not options.simulate or not meta:
        return ""
    if len(meta) < len(names) or len(options.simulate) > 1:
        raise WmschedError(
            f"--simulate replays either AutoScheduler's logs or one database of MetaSchedule: run {meta[0]} "
            "without the other methods, and with one --simulate"
        )
    (source,) = options.simulate
    if source != "model" and not Path(source).is_dir():
        raise WmschedError(f'--simulate {source}: no such folder; for a made-up GPU say "model"')
    return source if source == "model" else str(Path(source).resolve())


def _check_meta(name: str, tasks: dict[str, dict[str, Any]]) -> None:
    """Refuse what MetaSchedule's runner cannot do: it has TensorIR of the representatives only."""
    others = [task for task, row in tasks.items() if not row.get("type")]
    if others:
        raise WmschedError(
            f"{name} tunes representatives only, not {', '.join(others[:3])}: give --tasks representatives"
        )


def main(argv: list[str] | None = None) -> int:
    """Run and print the tables; the exit status is 1 if a run failed, 2 if nothing could be started."""
    options = parser(__doc__).parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    console = Console(stderr=True)
    try:
        bench, runs, recorded = prepare(options, console)
    except (WmschedError, ValueError, OSError) as error:
        console.print(str(error), style="red", markup=False)
        return 2
    failed = bench.go(runs, recorded)
    if not options.parcel:
        print(_markdown(bench.results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
