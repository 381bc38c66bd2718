"""Boosted trees that rank configurations of a graph: on sums over it, or on the costs of its regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xgboost
from numpy.typing import NDArray

from benchmarks.offline.graph_data import Labelled

__all__ = ["cost_scores", "rank_scores"]

ALGORITHMS, KINDS = 5, 7  # options of a convolution or product; kinds of sites
TREES = {"max_depth": 6, "eta": 0.05, "subsample": 0.8, "nthread": 1}
ROUNDS = 300
RANKS = 31  # grades of speed that a ranking is trained on
SHAPE, WEIGHTS, WINDOW, STRIDE, GROUPS = slice(21, 27), slice(31, 35), slice(37, 39), 45, 107  # of node_feat


def _sites(graph: Labelled) -> NDArray[np.float64]:
    """Return what is known of each site, [k, 14]: kind, work, sizes and weights as logarithms."""
    feat = graph.graph.node_feat[graph.graph.node_config_ids].astype(np.float64)
    first = graph.choices[0]
    window, groups = feat[:, WINDOW], feat[:, GROUPS]
    pixels = np.maximum(feat[:, 28], 1)
    sums = np.maximum(np.where(groups > 0, window.prod(1) * feat[:, 33], feat[:, 31]), 1)
    is_conv, is_matmul = (first[:, 0] >= 0) & (groups > 0), (first[:, 0] >= 0) & (groups == 0)
    kind = np.select(
        [
            is_conv & (groups > 1),
            is_conv & (window[:, 0] == 1),
            is_conv & (window[:, 0] == 3) & (feat[:, STRIDE] == 1),
            is_conv,
            is_matmul,
            first[:, 1] >= 0,
        ],
        range(6),
        6,
    )
    logs = np.log2(1 + np.column_stack([pixels, sums, pixels * sums, feat[:, SHAPE], feat[:, WEIGHTS]]))
    return np.column_stack([kind, logs])


def _summed(graph: Labelled) -> NDArray[np.float64]:
    """Return a row for each configuration: shares of the work and of the sites, by kind and option."""
    sites = _sites(graph)
    kind, work = sites[:, 0].astype(int), 2 ** sites[:, 3]
    option = graph.codes
    found = np.zeros((len(option), KINDS, ALGORITHMS, 2))
    for site in range(len(kind)):
        rows = np.arange(len(option))
        found[rows, kind[site], option[:, site], 0] += work[site] / work.sum()
        found[rows, kind[site], option[:, site], 1] += 1 / len(kind)
    whole = np.array([np.log2(work.sum()), len(kind), *np.bincount(kind, work, KINDS) / work.sum()])
    flat = found.reshape(len(option), -1)
    return np.hstack([flat, np.repeat(whole[None], len(flat), 0)])


def rank_scores(train: Sequence[Labelled], test: Sequence[Labelled], seed: int) -> list[NDArray[np.float64]]:
    """Train on pairs of configurations of a graph; scores of the others' configurations, low for fast."""
    rows = np.vstack([_summed(graph) for graph in train])
    grades = [_grades(graph.runtimes) for graph in train]
    groups = np.repeat(np.arange(len(train)), [len(one) for one in grades])
    data = xgboost.DMatrix(rows, np.concatenate(grades), qid=groups)
    model = xgboost.train({**TREES, "objective": "rank:pairwise", "seed": seed}, data, ROUNDS)
    return [-_told(model, _summed(graph)) for graph in test]


def _told(model: xgboost.Booster, rows: object) -> NDArray[np.float64]:
    return np.asarray(model.predict(xgboost.DMatrix(np.asarray(rows))), np.float64)


def _grades(runtimes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return grades of speed, of which the fastest has the highest."""
    place = np.argsort(np.argsort(-runtimes))
    return np.rint(place / max(len(place) - 1, 1) * (RANKS - 1)).astype(np.int64)


def cost_scores(train: Sequence[Labelled], test: Sequence[Labelled], seed: int) -> list[NDArray[np.float64]]:
    """Train on the costs of regions; sums of the costs that are predicted for the others' regions."""
    pairs = [(row, cost) for graph in train for _, _, row, cost in _options(graph)]
    data = xgboost.DMatrix(np.array([row for row, _ in pairs]), np.log([cost for _, cost in pairs]))
    model = xgboost.train({**TREES, "seed": seed}, data, ROUNDS)
    return [_added(graph, model) for graph in test]


def _added(graph: Labelled, model: xgboost.Booster) -> NDArray[np.float64]:
    found = list(_options(graph))
    total = np.zeros(len(graph.runtimes))
    if not found:
        return total
    costs = np.exp(_told(model, [row for *_, row, _ in found]))
    told = {(number, options): float(cost) for (number, options, *_), cost in zip(found, costs)}
    chosen = graph.numbers
    for number, *sites in graph.region_sites.tolist():
        own = [site for site in sites if site >= 0]
        total += [told[number, tuple(row[own].tolist())] for row in chosen]
    return total


def _options(graph: Labelled) -> Iterator[tuple[int, tuple[int, ...], list[float], float]]:
    """Yield class, options, columns and nanoseconds of each option of the regions."""
    sites, chains = _sites(graph), graph.choices[0, :, 1] >= 0
    first = {
        number: [site for site in own if site >= 0] for number, *own in graph.region_sites.tolist()[::-1]
    }
    for number, cost, *options in graph.region_costs.tolist():
        own = first[number]
        codes = [int(graph.site_options[site, option]) for site, option in zip(own, options, strict=False)]
        algorithms = [code for code, site in zip(codes, own, strict=True) if not chains[site]]
        apart = [code for code, site in zip(codes, own, strict=True) if chains[site]]
        row = [*sites[own[0]], len(own), len(apart), sum(apart), algorithms[0] if algorithms else -1]
        yield number, tuple(options[: len(own)]), row, float(cost)
