"""Figures of constructed schedules: what the first choice costs over the best known."""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks.construct import table
from benchmarks.construct.variants import GENSOR, TODAY
from benchmarks.plan import read_all
from benchmarks.scoreboard import registry
from benchmarks.scoreboard.figure import Figure, Measured

LINES = "emr-construct.jsonl"
COMMAND = f"python -m benchmarks.construct --out benchmarks/results/{LINES} --print"
FIRST_CHOICES: list[Figure] = []
figure = functools.partial(registry.figure, into=FIRST_CHOICES, command=COMMAND)


def _over_best(folder: Path, name: str) -> dict[str, float]:
    found = table.over_best(read_all([folder / LINES]), name)
    if not found:
        raise ValueError(f"no task has a first choice of {name} in its lines")
    return found


def _mean(found: dict[str, float]) -> Measured:
    return registry.of_ratios({task: [value] for task, value in found.items()})


@figure("construct.first_over_best_geomean", LINES, asked="max 1.1")
def _geomean(folder: Path) -> Measured:
    return _mean(_over_best(folder, TODAY))


@figure("construct.first_over_best_p90", LINES, asked="max 1.3")
def _ninth(folder: Path) -> Measured:
    return Measured(table.summary(_over_best(folder, TODAY))[3])


@figure("construct.first_over_best_max", LINES, asked="max 2")
def _most(folder: Path) -> Measured:
    return Measured(table.summary(_over_best(folder, TODAY))[4])


@figure("construct.gensor_first_over_best_geomean", LINES)
def _gensor(folder: Path) -> Measured:
    """The better of the two readings of Eq 1."""
    return min(_mean(_over_best(folder, name)) for name in GENSOR)
