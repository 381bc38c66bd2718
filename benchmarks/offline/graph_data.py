"""Labelled graphs of `wmsched-data graphs`, and their division by architecture family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wmsched.graph.config import PreparationConfig
from wmsched.graph.packing import pack_configs
from wmsched.graph.prepare import PreparedGraph, prepare_graph
from wmsched.graph.tpugraphs import FEATURE_COLUMNS, LayoutGraph, read_graph

__all__ = ["Labelled", "cost_columns", "folds_of", "prepared", "read"]

RATIOS = (0.7, 0.87, 0.97, 1.03, 1.15, 1.4)  # between the grades of a region's cost over the rules'
SHARES = (-0.06, -0.02, -0.005, 0.005, 0.02, 0.06)  # of the difference over the whole graph's cost


@dataclass(frozen=True, eq=False)
class Labelled:
    """A graph with seconds of its configurations.

    Attributes
    ----------
    graph : LayoutGraph
    rules : number of today's rules among the configurations
    added : float64 [c], nanoseconds that the integer program adds up
    timings : float64 [t, c], nanoseconds of each timing
    site_options : int8 [k, o], code of each option of a site, -1 beyond; the rules' first
    region_sites : int64 [r, 1 + s], class of each region with costs, and its sites, -1 beyond
    region_costs : int64 [o, 2 + s], class, nanoseconds, and an option for each of its sites
    """

    graph: LayoutGraph
    rules: int
    added: NDArray[np.float64]
    timings: NDArray[np.float64]
    site_options: NDArray[np.int8]
    region_sites: NDArray[np.int64]
    region_costs: NDArray[np.int64]

    @property
    def name(self) -> str:
        """Return the graph's name."""
        return self.graph.name

    @property
    def family(self) -> str:
        """Return the part of its name that similar graphs share."""
        return self.name.rpartition("-")[0]

    @property
    def runtimes(self) -> NDArray[np.float64]:
        """Return the labels, float64 [c], nanoseconds."""
        return self.graph.config_runtime.astype(np.float64)

    @property
    def choices(self) -> NDArray[np.int8]:
        """Return algorithm, chain, concatenation and whether it is the rules': int8 [c, k, 4]."""
        return self.graph.node_config_feat[:, :, 18:22]

    @property
    def codes(self) -> NDArray[np.int8]:
        """Return the code of each site's option, int8 [c, k]."""
        return self.choices[:, :, :3].max(2)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Return the number of each site's option, int64 [c, k]."""
        return (self.codes[:, :, None] == self.site_options[None]).argmax(2)


def read(folder: Path) -> list[Labelled]:
    """Read all files of a folder. ValueError where there is none."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        graph = read_graph(path)
        assert isinstance(graph, LayoutGraph), path
        with np.load(path) as file:
            found.append(
                Labelled(
                    graph,
                    int(file["rules_index"]),
                    file["added_costs"].astype(np.float64),
                    file["config_runtime_timings"].astype(np.float64),
                    file["site_options"],
                    file["region_sites"],
                    file["region_costs"],
                )
            )
    if not found:
        raise ValueError(f"{folder} has no graphs: `wmsched-data graphs --out {folder}` collects them")
    return found


def folds_of(graphs: Sequence[Labelled], folds: int) -> dict[str, int]:
    """Return the fold of each family, in which it is held out; folds get about as many graphs each."""
    sizes: dict[str, int] = {}
    for graph in graphs:
        sizes[graph.family] = sizes.get(graph.family, 0) + 1
    found, total = {}, [0] * folds
    for family in sorted(sizes, key=lambda one: (-sizes[one], one)):
        fold = total.index(min(total))
        found[family] = fold
        total[fold] += sizes[family]
    return found


def prepared(graph: Labelled, *, costs: bool = False) -> PreparedGraph:
    """Return a graph as the network reads it, with logarithms of its numbers.

    TpuGraphs' sizes span six decades. With thousands of graphs that does no harm; with dozens it does.

    Parameters
    ----------
    graph : Labelled
    costs : bool
        Whether configurations hold the measured costs of their options (`cost_columns`).
    """
    feat = graph.graph.node_feat.copy()
    feat[:, :FEATURE_COLUMNS] = np.log2(1 + np.maximum(feat[:, :FEATURE_COLUMNS], 0))
    told = replace(graph.graph, node_feat=feat)
    if costs:
        configs = graph.graph.node_config_feat.copy()
        configs[:, :, 22:24] = cost_columns(graph)
        told = replace(told, configs=pack_configs(configs))
    return prepare_graph(told, PreparationConfig(), for_training=False)


def cost_columns(graph: Labelled) -> NDArray[np.int8]:
    """Return what each site's option costs, int8 [c, k, 2], in seven grades from -1, cheap, to 5.

    The first column is of the region's cost over that with the rules' options, the second of the difference
    over the whole graph's cost. They stand at a region's first site; all else has the middle grade.
    """
    numbers = graph.numbers
    costs: dict[int, dict[tuple[int, ...], float]] = {}
    for number, cost, *options in graph.region_costs.tolist():
        costs.setdefault(number, {})[tuple(options)] = float(cost)
    found = np.full((*numbers.shape, 2), 2, np.int8)
    whole = graph.added[graph.rules]
    for number, *places in graph.region_sites.tolist():
        sites = [site for site in places if site >= 0]
        padding = (-1,) * (len(places) - len(sites))
        own = np.array([costs[number][(*row, *padding)] for row in numbers[:, sites].tolist()])
        rules = costs[number][((0,) * len(sites)) + padding]
        found[:, sites[0], 0] = np.searchsorted(RATIOS, own / rules) - 1
        found[:, sites[0], 1] = np.searchsorted(SHARES, (own - rules) / whole) - 1
    return found
