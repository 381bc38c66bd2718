"""Figures of the score board; to add one, add a function or a row of a table here."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from benchmarks.outcomes import ratios as stats
from benchmarks.outcomes import sooner
from benchmarks.plan import read_all
from benchmarks.report import glance
from benchmarks.report.against import usual
from benchmarks.scoreboard.figure import Figure, Measured
from benchmarks.tune.meta import rpc_fleet

BOARD = "python -m benchmarks.scoreboard"
_read = lru_cache(maxsize=None)(glance.read)
_declared: list[Figure] = []


def figure(
    name: str, *lines: str, asked: str = "", command: str = BOARD, into: list[Figure] = _declared
) -> Callable[[Callable[[Path], Measured]], Callable[[Path], Measured]]:
    """Declare a figure: the function below takes the folder of results and returns the number.

    Parameters
    ----------
    name, lines, asked, command
        As in `Figure`.
    into : list
        Where it is declared: a module of its own has a list of its own.
    """

    def declare(measure: Callable[[Path], Measured]) -> Callable[[Path], Measured]:
        into.append(Figure(name=name, lines=lines, command=command, measure=measure, asked=asked))
        return measure

    return declare


def of_ratios(found: stats.Ratios) -> Measured:
    """Geometric mean over tasks with its 95 % interval. ValueError without a task."""
    if not found:
        raise ValueError("there is nothing to compare in its lines")
    return Measured(stats.geometric_mean(stats.by_task(found)), *stats.confidence(found))


# The comparisons of README's table and of docs/results.md.

_WHAT = {
    glance.SCRIPT: "script",
    glance.KEPT: "script-search-kept",
    glance.IN_TURN: "script-in-turn",
    glance.IN_TURN_BEFORE: "script-in-turn-before-tile-shares",
    glance.ONE_TILE: "script-before-tile-shares",
    glance.UNLEARNT: "script-avx512-bundle",
    glance.ALONE: "ansor-model",
    glance.TUNE_TIR: "tune-tir",
    glance.META: "meta-model",
    glance.SEARCH: "meta-search",
    glance.SPACES: "meta-spaces",
}
_MACHINES = {
    glance.EMERALD: "emr",
    glance.AVX2: "emr-avx2",
    glance.ICE: "icx",
    glance.ZEN5: "zen5",
    glance.ZEN5_TWO: "zen5-2-threads",
    glance.ZEN4: "zen4",
    glance.ZEN3: "zen3",
    glance.H100: "h100",
    glance.H200: "h200",
}
_OF = {"": "subgraphs", glance.MODELS: "weighted", glance.WHOLE: "whole"}
_AGAINST = {
    "ansor-script": "ansor",
    "ansor": "ansor",
    "tenset-script": "tenset",
    "meta-xgb": "xgb",
    "meta-xgb-script": "xgb",
    glance.EAGER: "pytorch-eager",
}


def _glance_figures(row: glance.Row) -> list[Figure]:
    """Speedup of a row of the table; beside it, for the README's, the time of the searches."""
    trials = str(row.trials) if row.trials == row.against else f"{row.trials}-to-{row.against}"
    parts = [_MACHINES[row.machine], _WHAT[row.what], _OF[row.of], _AGAINST[row.theirs], trials]
    name = ".".join(["glance", *parts])
    lines = tuple(f"{file}.jsonl" for file in row.files.split())
    command = "python -m benchmarks.report.glance" + ("" if row.main else " --all")
    paper = glance.published(row)
    asked = f"min {paper}" if paper and not paper.endswith("GPU") else ""
    found = [Figure(name=name, lines=lines, command=command, measure=partial(_speedup, row), asked=asked)]
    if row.main and row.of != glance.WHOLE and row.machine not in (glance.H100, glance.H200):
        found.append(
            Figure(
                name=f"{name}.search-time", lines=lines, command=command, measure=partial(_search_time, row)
            )
        )
    return found


def _speedup(row: glance.Row, results: Path) -> Measured:
    return of_ratios(glance.ratios(row, _read(row.files, results)))


def _search_time(row: glance.Row, results: Path) -> Measured:
    """Our searches' seconds over theirs."""
    found = glance.searching(row, _read(row.files, results))
    if not found:
        raise ValueError("its lines do not say how long the searches took")
    return Measured(float(found))


@figure("search.zen5.within-8-trials-of-stock-1024", "zen5-long.jsonl")
def _within_eight(results: Path) -> Measured:
    """Subgraphs, of six, on which one of our first eight candidates was as fast as stock's best of 1024."""
    data, setting = _read("zen5-long", results), usual(1024)
    points = [
        sooner.reached(mine, theirs.seconds)
        for _, mine, theirs in data.both("wmsched-script", setting, "ansor-script", setting)
    ]
    return Measured(sum(point is not None and point[0] <= 8 for point in points))


@figure(
    "rpc.two_devices_speedup",
    "emr-rpc.jsonl",
    asked="min 1.8",
    command="python -m benchmarks.tune.meta.rpc_fleet --out benchmarks/results/emr-rpc.jsonl",
)
def _two_devices(results: Path) -> Measured:
    """Candidates a second of two devices over one's, the median of the rounds."""
    found = rpc_fleet.speedups(read_all([results / "emr-rpc.jsonl"]))
    if not found:
        raise ValueError("no round of its lines is complete")
    return Measured(statistics.median(found), min(found), max(found))


# Whole models as `wmsched tune` leaves them: how much faster they are than other builds.


def _tuned_models(machine: str, file: str, build: str) -> Figure:
    return Figure(
        name=f"models.{machine}.tuned-over-{build.replace('.', '-')}",
        lines=(file,),
        command=f"python -m benchmarks.models.tuned_models --out benchmarks/results/{file}",
        measure=partial(_tuned_over, file, build),
    )


def _tuned_over(file: str, build: str, results: Path) -> Measured:
    last = {line["model"]: line for line in read_all([results / file]) if line["kind"] == "tuned_model"}
    seconds = {model: line["seconds"] for model, line in last.items()}
    return of_ratios({m: [s[build] / s["tuned"]] for m, s in seconds.items() if build in s})


def _gpu_model(model: str, build: str) -> Figure:
    file = f"h100-{model}.json"
    return Figure(
        name=f"models.h100.{model}.tuned-over-{build}",
        lines=(file,),
        command=BOARD,
        measure=partial(_gpu_tuned_over, file, build),
    )


def _gpu_tuned_over(file: str, build: str, results: Path) -> Measured:
    seconds = json.loads((results / file).read_text(encoding="utf-8"))["seconds"]
    return Measured(seconds[build] / seconds["tuned"])


TABLES: tuple[Figure, ...] = (
    *(made for row in glance.ROWS for made in _glance_figures(row)),
    *(
        _tuned_models(machine, f"{machine}-models.jsonl", build)
        for machine in ("zen5", "emr")
        for build in ("untuned", "eager", "torch.compile")
    ),
    *(
        _gpu_model(model, build)
        for model in ("bert-base", "resnet50", "decoder-step")
        for build in ("untuned", "eager")
    ),
    *_declared,
)
