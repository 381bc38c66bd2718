"""Figures of ranked configurations of whole graphs, held out by architecture family."""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks.offline import graph_ranking
from benchmarks.plan import read_all
from benchmarks.scoreboard import registry
from benchmarks.scoreboard.figure import Figure, Measured

GRAPHS: list[Figure] = []
LINES = "emr-graph-ranking.jsonl"
COMMAND = f"python -m benchmarks.offline.graph_ranking --folder DIR --out benchmarks/results/{LINES}"
figure = functools.partial(registry.figure, into=GRAPHS, command=COMMAND)


def _mean(folder: Path, method: str, metric: str) -> Measured:
    """Mean over the graphs, with its interval over them."""
    found = graph_ranking.by_graph(read_all([folder / LINES]), method)
    if not found:
        raise ValueError(f"no graph of its lines is ranked by {method}")
    return Measured(*graph_ranking.interval([one[metric] for one in found.values() if metric in one]))


@figure("graph.tau", LINES, asked="min 0.67")
def _tau(folder: Path) -> Measured:
    """TGraph's, trained on other families."""
    return _mean(folder, graph_ranking.TGRAPH, "tau")


@figure("graph.best_of_5", LINES, asked="min 0.97")
def _best_of_five(folder: Path) -> Measured:
    """Share of the best known speed of TGraph's first five."""
    return _mean(folder, graph_ranking.TGRAPH, "best_of_5")


@figure("graph.ilp_best_of_5", LINES)
def _program(folder: Path) -> Measured:
    """The same of the integer program over costs that are measured for each graph."""
    return _mean(folder, "ilp", "best_of_5")


@figure("graph.rules_over_best", LINES)
def _rules(folder: Path) -> Measured:
    """Seconds of today's rules over those of the best known configuration."""
    lines = read_all([folder / LINES])
    found = [line["rules_over_best"] for line in lines if line["kind"] == graph_ranking.REPEAT]
    if not found:
        raise ValueError("no graph is in its lines")
    return Measured(*graph_ranking.interval(found))
