"""`python -m benchmarks.runtimes.disturbed --folder DIR --out FILE`: searches beside a busy program.

Three small models are searched alone and beside programs that spin, with the same seed. Both libraries are
then called in turns, on the machine alone. A search has a JSON line of kind "disturbed_search", with each
task's part of the trials and of the time in the model. A pair has one of kind "disturbed", with the
microseconds of both and `ratio`, busy over alone. A killed run goes on with FILE and DIR. It ends with the
table.

Nothing else should run: `load_before` says what does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Results
from benchmarks.runtimes.busy import OURS, REST, Child, busy
from benchmarks.runtimes.compare import geomean

SEARCH, PAIR = "disturbed_search", "disturbed"
MODELS = ("feed-forward", "convnet", "lstm")
TRIALS = {"feed-forward": 16, "convnet": 24, "lstm": 24}
RUNS = 5
PROGRAMS = 1  # that spin beside a search
TURNS, SECONDS = 5, 0.3  # of a library, and their length
LIMIT_SECONDS = 900.0


def export(name: str, folder: Path) -> Path:
    """Write a model as ``NAME.pt2`` into `folder`, unless it is there; its path."""
    path = folder / f"{name}.pt2"
    if not path.is_file():
        import torch

        from benchmarks.runtimes.models import build

        folder.mkdir(parents=True, exist_ok=True)
        model, data = build(name)
        new = path.with_suffix(".new.pt2")
        with torch.inference_mode():
            torch.export.save(torch.export.export(model, (data,)), new)
        new.replace(path)
    return path


def search(name: str, folder: Path, seed: int, programs: int, trials: int) -> dict[str, Any]:
    """Search a model beside so many busy programs; its line. Raises CalledProcessError."""
    out = folder_of(folder, name, seed, programs)
    command = [sys.executable, "-m", "wmsched", "tune", str(export(name, folder)), "--out", str(out)]
    command += ["--trials", str(trials), "--seed", str(seed), "--resume"]
    others, began = os.getloadavg()[0], time.monotonic()
    with busy(programs):
        subprocess.run(command, check=True, timeout=LIMIT_SECONDS, stdout=subprocess.DEVNULL)
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return {
        "kind": SEARCH, "model": name, "seed": seed, "programs": programs, "trials": trials,
        "seconds": round(time.monotonic() - began, 1), "load_before": round(others, 2), **shares(report),
    }  # fmt: skip


def shares(report: dict[str, Any]) -> dict[str, list[float]]:
    """Each task's part of the trials, and of the time of those that were timed in the model."""
    tasks = report["tasks"]
    trials, times = sum(one["trials"] for one in tasks), sum(one["in_model"] or 0.0 for one in tasks)
    return {
        "trial_shares": [round(one["trials"] / max(trials, 1), 4) for one in tasks],
        "time_shares": [round((one["in_model"] or 0.0) / times, 4) if times else 0.0 for one in tasks],
    }


def folder_of(folder: Path, name: str, seed: int, programs: int) -> Path:
    return folder / "searched" / f"{name}-{seed}-beside-{programs}"


def compare(name: str, folder: Path, seed: int, programs: int, turns: int, seconds: float) -> dict[str, Any]:
    """Call what both searches left in turns; the pair's line. Raises RuntimeError if one cannot run."""
    paths = {"alone": folder_of(folder, name, seed, 0), "busy": folder_of(folder, name, seed, programs)}
    others, children = os.getloadavg()[0], dict[str, Child]()
    times: dict[str, list[float]] = {which: [] for which in paths}
    try:
        for which, path in paths.items():
            children[which] = Child(OURS, path, sys.executable)
        for turn in range(turns):
            for which in list(paths)[:: -1 if turn % 2 else 1]:
                time.sleep(REST)
                times[which].append(statistics.median(children[which].latencies(seconds)))
    finally:
        for child in children.values():
            child.close()
    ratio = statistics.median(b / a for a, b in zip(times["alone"], times["busy"], strict=True))
    return {
        "kind": PAIR, "model": name, "seed": seed, "programs": programs, "ratio": round(ratio, 4),
        **{which: round(statistics.median(found), 2) for which, found in times.items()},
        "load_before": round(others, 2),
    }  # fmt: skip


def ratios(lines: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """By model: busy over alone of each seed, by its last line."""
    last = {(one["model"], one["seed"]): one["ratio"] for one in lines if one["kind"] == PAIR}
    found: dict[str, list[float]] = {}
    for (model, _), ratio in last.items():
        found.setdefault(model, []).append(ratio)
    return found


def figures(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The score board's figures: the geometric mean over models, and the model that loses most."""
    found = [geomean(each) for each in ratios(lines).values()]
    return {"disturbed.geomean": geomean(found), "disturbed.worst": max(found)} if found else {}


def over_share(lines: Sequence[dict[str, Any]]) -> int:
    """Searches in which a task had over a third of the trials, and less than a third of the time."""
    return sum(
        any(
            trials > 1 / 3 + 0.02 and spent < 1 / 3
            for trials, spent in zip(one["trial_shares"], one["time_shares"], strict=True)
        )
        for one in lines
        if one["kind"] == SEARCH and len(one["trial_shares"]) > 3
    )


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Latency that a search beside a busy program leaves, over that of a search alone."""
    rows = [
        [model, str(len(found)), f"{geomean(found):.3f}", f"{min(found):.3f}", f"{max(found):.3f}"]
        for model, found in ratios(lines).items()
    ]
    note = "; ".join(f"{name} {value:.4f}" for name, value in figures(lines).items())
    note += f"; searches with a task above its share of the trials: {over_share(lines)}"
    head = ["model", "runs", "busy over alone", "least", "most"]
    return Table(title="Searched beside a busy program, over searched alone", head=head, rows=rows, note=note)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.runtimes.disturbed", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--folder", type=Path, required=True, help="of models and their searches")
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    parser.add_argument("--models", default=",".join(MODELS), help="(%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="seeds of each model (%(default)s)")
    parser.add_argument("--trials", type=int, default=0, help="of a search (by model)")
    parser.add_argument("--programs", type=int, default=PROGRAMS, help="that spin (%(default)s)")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each library (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a turn (%(default)s)")
    options = parser.parse_args(argv)
    if min(options.runs, options.programs, options.turns) < 1 or not math.isfinite(options.seconds):
        parser.error("--runs, --programs and --turns are 1 or more, --seconds is a number")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    results, about = Results(options.out), machine.describe()

    def add(line: dict[str, Any]) -> None:
        console.print(" ".join(f"{name}={value}" for name, value in line.items()))
        results.append({**line, "date": datetime.now(UTC).isoformat(timespec="seconds"), **about})

    for seed in range(1, options.runs + 1):
        for name in filter(None, options.models.split(",")):
            have = {
                (one["kind"], one["programs"])
                for one in results.lines
                if (one.get("model"), one.get("seed")) == (name, seed)
            }
            # who is first alternates: a drift of the machine's speed falls on both
            for programs in (0, options.programs)[:: -1 if seed % 2 else 1]:
                if (SEARCH, programs) not in have:
                    trials = options.trials or TRIALS.get(name, 32)
                    add(search(name, options.folder, seed, programs, trials))
            if (PAIR, options.programs) not in have:
                turns = (options.turns, options.seconds)
                add(compare(name, options.folder, seed, options.programs, *turns))
    print(table(results.lines).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
