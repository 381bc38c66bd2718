"""Evaluation of a ranker on a split, graph by graph, with intervals over graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wmsched.base.errors import DatasetError
from wmsched.graph.ensemble import GraphRanker
from wmsched.graph.metrics import quality
from wmsched.graph.prepare import prepare_graph
from wmsched.graph.tpugraphs import LayoutGraph, TileGraph

RESAMPLES = 2000  # of the graphs, for an interval


def evaluate_graphs(
    ranker: GraphRanker,
    graphs: Iterable[LayoutGraph | TileGraph],
    *,
    on_graph: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Score graphs and return a row of metrics for each.

    Parameters
    ----------
    ranker : GraphRanker
    graphs : read one at a time; duplicates among the configurations stay, as in the official evaluation
    on_graph : gets each row as soon as it is there

    Returns
    -------
    list of dict
        ``graph``, ``nodes`` (after pruning), ``configs`` and the metrics of `metrics.quality`.

    Raises
    ------
    DatasetError
        A graph has no labels, as the official test files.
    """
    rows = []
    for graph in graphs:
        prepared = prepare_graph(graph, ranker.preparation, for_training=False)
        if not prepared.has_runtimes:
            raise DatasetError(
                f"{graph.name} has runtimes of 0: its labels are secret, as in the official test split; "
                "evaluate on another split, or rank it with `wmsched graph score`"
            )
        scores = ranker.score(prepared)
        row = {"graph": graph.name, "nodes": len(prepared.opcodes), "configs": len(prepared)}
        row |= quality(scores, prepared.runtimes, kind=prepared.kind)
        rows.append(row)
        if on_graph is not None:
            on_graph(row)
    return rows


def summarize(rows: list[dict[str, Any]], *, seed: int = 0) -> dict[str, dict[str, float]]:
    """Return mean and 95 % interval over graphs of each metric.

    Parameters
    ----------
    rows : of `evaluate_graphs`. A graph whose tau is not defined (all runtimes equal) is left out of the mean
    of tau seed : of the bootstrap that the interval comes from

    Returns
    -------
    dict
        By metric: ``mean``, ``low``, ``high``, ``graphs``.
    """
    rng = np.random.default_rng(seed)
    table = {}
    for name in (key for key in rows[0] if key not in ("graph", "nodes", "configs")) if rows else ():
        values = np.array([row[name] for row in rows if math.isfinite(row[name])])
        if not len(values):
            continue
        means = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(1)
        low, high = np.quantile(means, [0.025, 0.975])
        table[name] = {"mean": values.mean(), "low": low, "high": high, "graphs": len(values)}
    return {name: {key: float(value) for key, value in row.items()} for name, row in table.items()}
