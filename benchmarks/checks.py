"""Checks before a benchmark run, which refuse what cannot be run honestly or does not fit the results."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from benchmarks import machine, methods
from benchmarks.outcomes.outcomes import on_gpu
from benchmarks.plan import Results, Run
from wmsched import zoo
from wmsched.base.cores import THREADS, named_threads, tvm_threads
from wmsched.base.errors import BundleError, WmschedError

SHIPPED = Path(zoo.__file__).parents[1] / "bundles"


def bundle_folder(name: str) -> Path:
    """The folder of a bundle given by its folder or its shipped name. BundleError if there is none."""
    for folder in (Path(name), SHIPPED / name):
        if (folder / "config.json").is_file():
            return folder
    shipped = sorted(p.name for p in SHIPPED.iterdir() if p.is_dir()) if SHIPPED.is_dir() else []
    raise BundleError(
        f"no bundle {name!r}: give a folder with a config.json or one of {', '.join(shipped) or '(none)'}"
    )


def check_parcel(options: argparse.Namespace, runs: list[Run]) -> None:
    """Refuse what cannot be timed later on another machine."""
    from benchmarks.tune.meta import deferred

    fit = [run for run in runs if methods.kin(run.method) in (methods.META, methods.SCRIPT)]
    if len(fit) < len(runs) or options.simulate or not options.target:
        raise WmschedError(
            "--parcel is for MetaSchedule's methods and AutoScheduler's scripts, with the other machine's "
            "--target"
        )
    deferred.check(runs)


def check_emulation(options: argparse.Namespace) -> None:
    """Refuse what cannot be timed as on another number of cores."""
    if options.emulate_threads < 0:
        raise ValueError(f"--emulate-threads {options.emulate_threads}: at least 1, or 0 for this machine's")
    for text in options.methods.split(","):
        if methods.kin(text) or options.simulate:
            raise WmschedError(
                f"{text} cannot be timed as on {options.emulate_threads} cores: --emulate-threads is for "
                "AutoScheduler's searches, not for scripts, MetaSchedule or --simulate"
            )


def check_processor(results: Results, threads: int = 0) -> None:
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


def check_places(results: Results, options: argparse.Namespace) -> None:
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


def simulated_machine(options: argparse.Namespace) -> str:
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


def check_meta(name: str, tasks: dict[str, dict[str, Any]]) -> None:
    """Refuse what MetaSchedule's runner cannot do: it has TensorIR of the representatives only."""
    others = [task for task, row in tasks.items() if not row.get("type")]
    if others:
        raise WmschedError(
            f"{name} tunes representatives only, not {', '.join(others[:3])}: give --tasks representatives"
        )
