"""Collections of graphs on disk, their splits, and the folds of cross-validation (section 2.4.3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import DatasetError
from wmsched.graph.config import PreparationConfig
from wmsched.graph.prepare import PreparedGraph, prepare_graph
from wmsched.graph.tpugraphs import LayoutGraph, TileGraph, read_graph

SPLITS = ("train", "valid", "test")


def graph_files(folder: str | Path, split: str) -> list[Path]:
    """Return the npz files of a split in the order of their names.

    Parameters
    ----------
    folder : the collection's, such as ``npz/layout/xla/random``, with folders train, valid and test
    split : one of `SPLITS`, or "all": the files of the folder itself, for a collection without splits

    Raises
    ------
    DatasetError
        There are none.
    """
    place = Path(folder) if split == "all" else Path(folder) / split
    files = sorted(place.glob("*.npz"))
    if not files:
        raise DatasetError(
            f"{place} has no npz files; name a collection's folder, with {', '.join(SPLITS)} in it "
            "(docs/graph.md says how to get one)"
        )
    return files


def load_split(
    folder: str | Path, split: str, config: PreparationConfig | None = None, *, for_training: bool
) -> list[PreparedGraph]:
    """Read and prepare all graphs of a split; the arguments are those of `graph_files` and `prepare_graph`.

    Raises
    ------
    DatasetError
        There are none, one is bad, or they are of both kinds.
    """
    graphs = [
        prepare_graph(read_graph(path), config, for_training=for_training)
        for path in graph_files(folder, split)
    ]
    kinds = {graph.kind for graph in graphs}
    if len(kinds) > 1:
        raise DatasetError(f"{folder}/{split} has layout and tile files; put them in folders of their own")
    return graphs


def split_folds(count: int, folds: int, *, seed: int) -> list[NDArray[np.int64]]:
    """Split graphs 0..count-1 into folds of nearly equal size, by graph and never by configuration.

    Raises
    ------
    ValueError
        There are fewer graphs than folds, or fewer than two folds.
    """
    if not 2 <= folds <= count:
        raise ValueError(f"{count} graphs cannot be split into {folds} folds: take 2 to {count}")
    order = np.random.default_rng([seed, folds]).permutation(count)
    return [np.sort(part) for part in np.array_split(order, folds)]


def trainable(graphs: Iterable[PreparedGraph]) -> list[PreparedGraph]:
    """Return graphs with labels of which at least two differ: the others have no pair to rank."""
    return [graph for graph in graphs if graph.has_runtimes and np.ptp(graph.runtimes) > 0]


def data_digest(graphs: Sequence[PreparedGraph]) -> str:
    """Return a short hash of graphs, configurations and runtimes: a resumed training must have the same."""
    digest = hashlib.sha256()
    for graph in graphs:
        digest.update(
            f"{graph.name} {graph.features.shape} {graph.edges.shape} {graph.configs.shape}".encode()
        )
        for array in (graph.opcodes, graph.config_nodes, graph.configs, graph.runtimes):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def read_indices(path: str | Path) -> dict[str, NDArray[np.int64]]:
    """Read fixed evaluation indices: a JSON object of graph names and configuration numbers.

    The official ones, 1000 for each validation graph, are the files of ``eval_indices`` in TpuGraphs'
    repository.

    Raises
    ------
    DatasetError
        The file is missing or has other contents.
    """
    try:
        values = json.loads(Path(path).read_bytes())
        table = {str(name): np.asarray(rows) for name, rows in values.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise DatasetError(f"{path}: no readable file of indices ({error}); download it again") from error
    for name, rows in table.items():
        if rows.ndim != 1 or not rows.size or rows.dtype.kind != "i" or rows.min() < 0:
            raise DatasetError(f"{path}: {name} has no list of configuration numbers; download it again")
    return {name: rows.astype(np.int64) for name, rows in table.items()}


def select_indices(
    graphs: Iterable[LayoutGraph | TileGraph], indices: Mapping[str, NDArray[np.int64]]
) -> Iterator[LayoutGraph | TileGraph]:
    """Restrict graphs to fixed indices, as the official evaluation does.

    Raises
    ------
    DatasetError
        A graph is not among the indices, or has fewer configurations than they name.
    """
    for graph in graphs:
        if graph.name not in indices:
            raise DatasetError(
                f"{graph.name} is not among the indices, which are of {', '.join(sorted(indices))}; "
                "take the file of this collection"
            )
        rows = indices[graph.name]
        if rows.max() >= len(graph.config_runtime):
            raise DatasetError(
                f"{graph.name}: index {rows.max()} of {len(graph.config_runtime)} configurations; "
                "take the file of this collection"
            )
        if isinstance(graph, LayoutGraph):
            yield replace(graph, configs=graph.configs[rows], config_runtime=graph.config_runtime[rows])
        else:
            yield replace(
                graph,
                config_feat=graph.config_feat[rows],
                config_runtime=graph.config_runtime[rows],
                config_runtime_normalizers=graph.config_runtime_normalizers[rows],
            )
