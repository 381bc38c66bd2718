"""From a graph of the format to what the network reads (section 2.2): pruned, without duplicates, padded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import DatasetError
from wmsched.graph.config import PreparationConfig
from wmsched.graph.packing import unpack_configs
from wmsched.graph.tpugraphs import (
    FEATURE_COLUMNS,
    LAYOUT_COLUMNS,
    SHAPE_COLUMNS,
    LayoutGraph,
    TileGraph,
)


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """A graph as the network reads it.

    Attributes
    ----------
    name : of the graph
    features : float32 [n, 134], not yet normalised: the network has the training set's mean and deviation
    layouts : int8 [n, 6], of the outputs, -1 beyond the rank
    opcodes : int64 [n]
    edges : int64 [m, 2], (consumer, producer)
    config_nodes : int64 [k], the configurable nodes; none in a tile graph
    configs : int32 [c, k, g] packed, or of a tile graph float32 [c, 24]
    runtimes : float64 [c], nanoseconds, or of a tile graph relative to its default configuration
    """

    name: str
    features: NDArray[np.float32]
    layouts: NDArray[np.int8]
    opcodes: NDArray[np.int64]
    edges: NDArray[np.int64]
    config_nodes: NDArray[np.int64]
    configs: NDArray[np.int32] | NDArray[np.float32]
    runtimes: NDArray[np.float64]

    def __len__(self) -> int:
        """Return the number of configurations."""
        return len(self.configs)

    @property
    def kind(self) -> str:
        """Either "layout" or "tile"."""
        return "layout" if self.configs.ndim == 3 else "tile"

    @property
    def has_runtimes(self) -> bool:
        """Whether the labels are there: the official test files have zeros instead."""
        return bool((self.runtimes > 0).all())

    def configs_at(self, rows: NDArray[np.int64]) -> NDArray[np.int8] | NDArray[np.float32]:
        """Return some configurations as the network takes them: int8 [b, k, 6 g] or float32 [b, 24]."""
        chosen = self.configs[rows]
        return unpack_configs(chosen) if self.kind == "layout" else chosen  # type: ignore[return-value]


def prune_graph(graph: LayoutGraph, *, kept_edges: str = "induced") -> LayoutGraph:
    """Keep configurable nodes and their direct neighbours (section 2.2.1).

    Parameters
    ----------
    graph : LayoutGraph
    kept_edges : str
        "induced": all edges between kept nodes (paper). "touching": only those with a configurable end
        (code), so that two kept nodes of which none is configurable are not joined.

    Returns
    -------
    LayoutGraph
        Nodes in their old order. ``node_splits`` is empty: it counted nodes that are gone.
    """
    nodes = len(graph.node_feat)
    is_configurable = np.zeros(nodes, bool)
    is_configurable[graph.node_config_ids] = True
    edges = graph.edge_index
    touching = is_configurable[edges].any(1)
    is_kept = is_configurable.copy()
    is_kept[edges[touching].reshape(-1)] = True
    chosen = is_kept[edges].all(1) if kept_edges == "induced" else touching
    number = np.cumsum(is_kept, dtype=np.int32) - 1
    return LayoutGraph(
        name=graph.name,
        node_feat=graph.node_feat[is_kept],
        node_opcode=graph.node_opcode[is_kept],
        edge_index=number[edges[chosen]].reshape(-1, 2),
        node_config_ids=number[graph.node_config_ids],
        configs=graph.configs,
        config_runtime=graph.config_runtime,
    )


def drop_duplicates(
    configs: NDArray[np.int32], runtimes: NDArray[np.float64], *, runtime: str = "min"
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find one of each set of equal configurations (section 2.2.2).

    Parameters
    ----------
    configs : int32 [c, k, g], packed
    runtimes : float64 [c]
    runtime : str
        Runtime of a set: its "min" (paper), its "first" (code) or its "mean".

    Returns
    -------
    rows, runtimes
        int64 [d] and float64 [d]: the first row of each set, in the order of the file, and the set's runtime.
    """
    rows = np.ascontiguousarray(configs.reshape(len(configs), -1))
    keys: NDArray[Any]
    if not rows.shape[1]:  # no configurable node: all are equal
        keys = np.zeros(len(rows), np.int64)
    else:
        keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    _, first, owner = np.unique(keys, return_index=True, return_inverse=True)
    if runtime == "min":
        values = np.full(len(first), np.inf)
        np.minimum.at(values, owner, runtimes)
    elif runtime == "mean":
        values = np.bincount(owner, weights=runtimes) / np.bincount(owner)
    else:
        values = runtimes[first]
    order = np.argsort(first)
    return first[order], values[order]


def pad_layouts(node_feat: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return the outputs' layouts int8 [n, 6] with -1 beyond the rank (section 2.2.4).

    The files pad with 0, which is a dimension too. The rank is the number of leading dimensions whose size is
    not 0; XLA's arrays without elements, with a size of 0, are rare and read as of a smaller rank.
    """
    rank = (np.cumprod(node_feat[:, SHAPE_COLUMNS] != 0, axis=1)).sum(1)
    layouts = node_feat[:, LAYOUT_COLUMNS].astype(np.int8)
    return np.where(np.arange(layouts.shape[1]) < rank[:, None], layouts, np.int8(-1))


def prepare_graph(
    graph: LayoutGraph | TileGraph, config: PreparationConfig | None = None, *, for_training: bool
) -> PreparedGraph:
    """Prepare a graph for the network.

    Parameters
    ----------
    graph : LayoutGraph or TileGraph
    config : PreparationConfig, optional
    for_training : bool
        Whether duplicates are dropped. Evaluation and scoring keep them, so that the rows are the file's.

    Raises
    ------
    DatasetError
        A layout is outside -1..5.
    """
    config = config or PreparationConfig()
    runtimes = graph.config_runtime.astype(np.float64)
    config_nodes = np.zeros(0, np.int64)
    configs: NDArray[np.int32] | NDArray[np.float32]
    if isinstance(graph, LayoutGraph):
        configs = graph.configs
        if for_training and config.duplicates != "keep":
            rows, runtimes = drop_duplicates(configs, runtimes, runtime=config.duplicates)
            configs = configs[rows]
        if config.prune and len(graph.node_config_ids):
            graph = prune_graph(graph, kept_edges=config.kept_edges)
        config_nodes = graph.node_config_ids.astype(np.int64)
    else:
        configs = graph.config_feat
        runtimes = runtimes / (graph.config_runtime_normalizers + 1e-5)
    given = graph.node_feat[:, LAYOUT_COLUMNS]
    if given.size and (given.min() < -1 or given.max() > 5):
        raise DatasetError(
            f"{graph.name}: layouts in node_feat[:, 134:140] are {given.min():g} to {given.max():g}, "
            "not of -1 to 5; write the file again"
        )
    return PreparedGraph(
        name=graph.name,
        features=graph.node_feat[:, :FEATURE_COLUMNS],
        layouts=pad_layouts(graph.node_feat) if config.pad_layouts else given.astype(np.int8),
        opcodes=graph.node_opcode.astype(np.int64),
        edges=graph.edge_index.astype(np.int64),
        config_nodes=config_nodes,
        configs=configs,
        runtimes=runtimes,
    )


def column_statistics(
    tables: Iterable[NDArray[np.float32]],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of each column over all rows of all tables (section 2.2.5).

    A column that does not vary gets the deviation 1, as scikit-learn's StandardScaler does.

    Raises
    ------
    ValueError
        There is no row.
    """
    rows, total, square = 0, np.zeros(1), np.zeros(1)
    kept = list(tables)
    for table in kept:
        rows, total = rows + len(table), total + table.sum(0, dtype=np.float64)
    if not rows:
        raise ValueError("no rows to normalise by")
    mean = total / rows
    for table in kept:  # in a second pass: products of sizes are too large for sums of squares
        square = square + ((table - mean) ** 2).sum(0)
    deviation = np.sqrt(square / rows)
    # a constant column's deviation is rounding noise of its mean
    varies = deviation > 1e-7 * np.maximum(np.abs(mean), 1e-30)
    return mean.astype(np.float32), np.where(varies, deviation, 1.0).astype(np.float32)
