"""Figures of what a change must not spoil: start, candidates a second, golden scores, the suite."""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks.plan import read_all
from benchmarks.regressions import candidates, golden, start, suite
from benchmarks.scoreboard import registry
from benchmarks.scoreboard.figure import Figure, Measured

START, CANDIDATES, GOLDEN, SUITE = (
    "emr-start.jsonl",
    "emr-candidates.jsonl",
    "golden.jsonl",
    "suite-seconds.jsonl",
)
STARTED = f"python -m benchmarks.regressions.start --out benchmarks/results/{START}"
SCORED = f"python -m benchmarks.regressions.candidates --before DIR --out benchmarks/results/{CANDIDATES}"
COMPARED = f"python -m benchmarks.regressions.golden --out benchmarks/results/{GOLDEN}"
TESTED = f"python -m benchmarks.regressions.suite --out benchmarks/results/{SUITE}"
REGRESSIONS: list[Figure] = []
figure = functools.partial(registry.figure, into=REGRESSIONS)


@figure("start.import_seconds", START, asked="max 0.3", command=STARTED)
def _import(folder: Path) -> Measured:
    return Measured(start.seconds(read_all([folder / START]), "import"))


@figure("start.help_seconds", START, asked="max 0.3", command=STARTED)
def _help(folder: Path) -> Measured:
    return Measured(start.seconds(read_all([folder / START]), "help"))


@figure("house.candidates_over_before.ansor", CANDIDATES, asked="min 0.95", command=SCORED)
def _ansor(folder: Path) -> Measured:
    """Candidates a second over those before the first room: the rounds' median, least and greatest."""
    return Measured(*candidates.over_before(read_all([folder / CANDIDATES]), "ansor"))


@figure("house.candidates_over_before.meta", CANDIDATES, asked="min 0.95", command=SCORED)
def _meta(folder: Path) -> Measured:
    return Measured(*candidates.over_before(read_all([folder / CANDIDATES]), "meta"))


@figure("house.golden_bundles", GOLDEN, asked=f"min {len(golden.DATA)}", command=COMPARED)
def _golden(folder: Path) -> Measured:
    """Shipped bundles whose scores are the golden file's to the last bit."""
    return Measured(golden.bundles(read_all([folder / GOLDEN])))


@figure("house.suite_seconds", SUITE, asked="max 1200", command=TESTED)
def _suite(folder: Path) -> Measured:
    return Measured(suite.seconds(read_all([folder / SUITE])))
