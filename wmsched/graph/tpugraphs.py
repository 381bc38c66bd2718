"""The npz format of TpuGraphs: layout graphs and tile kernels, read, checked and written.

A layout file has one whole model and configurations of some of its nodes; a tile file has one kernel and
configurations of the kernel. Both have

    node_feat [n, 140] float32      columns: see `LAYOUT_COLUMNS` and `SHAPE_COLUMNS`
    node_opcode [n]                 HLO ids 0..120; further ones are free for other operators
    edge_index [m, 2]               (u, v): node u consumes the output of node v
    config_runtime [c] integer      nanoseconds; 0 throughout where the labels are kept secret

and besides, layout: node_config_ids [k], node_config_feat [c, k, 18] (output, input and kernel layout, six
places each, minor to major, -1 beyond), node_splits; tile: config_feat [c, 24], config_runtime_normalizers
[c].

The width of ``node_config_feat`` is read from the file: further groups of six columns with values of -1..5
may hold choices that are no layouts. Runtimes are kept as int64, since int32 ends at 2.1 seconds.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import DatasetError
from wmsched.base.files import atomic_open
from wmsched.graph.packing import GROUP, pack_configs, unpack_configs

NODE_COLUMNS = 140
FEATURE_COLUMNS = 134  # numbers and one-hot columns, before the layout
LAYOUT_COLUMNS = slice(134, 140)  # the output's layout, minor to major
SHAPE_COLUMNS = slice(21, 27)  # sizes of the output's dimensions, 0 beyond the rank
TILE_COLUMNS = 24  # bounds of kernel, output and input: six sizes, their sum and their product each
REMEDY = "extract it from its archive again, or leave the file out"

_COMMON = ("node_feat", "node_opcode", "edge_index", "config_runtime")
_LAYOUT = (*_COMMON, "node_config_ids", "node_config_feat")
_TILE = (*_COMMON, "config_feat", "config_runtime_normalizers")


@dataclass(frozen=True, eq=False)
class LayoutGraph:
    """A model's graph with layout configurations of some nodes.

    Attributes
    ----------
    name : file name without its ending
    node_feat : float32 [n, 140]
    node_opcode : int32 [n]
    edge_index : int32 [m, 2], (consumer, producer)
    node_config_ids : int32 [k], the configurable nodes
    configs : int32 [c, k, g], packed by `packing.pack_configs`
    config_runtime : int64 [c], nanoseconds
    node_splits : int64 [s], where the parts of the model begin and end; of no use here
    """

    name: str
    node_feat: NDArray[np.float32]
    node_opcode: NDArray[np.int32]
    edge_index: NDArray[np.int32]
    node_config_ids: NDArray[np.int32]
    configs: NDArray[np.int32]
    config_runtime: NDArray[np.int64]
    node_splits: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def node_config_feat(self) -> NDArray[np.int8]:
        """Configurations as the file has them, int8 [c, k, 6 g]."""
        return unpack_configs(self.configs)


@dataclass(frozen=True, eq=False)
class TileGraph:
    """A kernel's graph with tile configurations.

    Attributes
    ----------
    name, node_feat, node_opcode, edge_index, config_runtime : as in `LayoutGraph`
    config_feat : float32 [c, 24]
    config_runtime_normalizers : int64 [c], the default configuration's nanoseconds
    """

    name: str
    node_feat: NDArray[np.float32]
    node_opcode: NDArray[np.int32]
    edge_index: NDArray[np.int32]
    config_feat: NDArray[np.float32]
    config_runtime: NDArray[np.int64]
    config_runtime_normalizers: NDArray[np.int64]


def read_graph(path: str | Path) -> LayoutGraph | TileGraph:
    """Read and check one file.

    Raises
    ------
    DatasetError
        The file is missing, damaged, or has other contents; the message names key, value and shape.
    """
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: no such file; see docs/graph.md for the collections") from error
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path}: no readable npz file ({error}); {REMEDY}") from error
    return graph_of_arrays(arrays, name=path.stem, place=str(path))


def graph_of_arrays(arrays: Mapping[str, Any], *, name: str, place: str) -> LayoutGraph | TileGraph:
    """Make a checked graph of a file's arrays.

    Parameters
    ----------
    arrays : by the format's keys; others are ignored
    name : of the graph
    place : where the arrays are from, for messages

    Raises
    ------
    DatasetError
        As `read_graph`.
    """
    is_layout = "node_config_feat" in arrays
    missing = [key for key in (_LAYOUT if is_layout else _TILE) if key not in arrays]
    if missing:
        kind = "layout" if is_layout else "tile"
        raise DatasetError(
            f"{place}: a {kind} file without {', '.join(missing)} "
            f"(it has {', '.join(sorted(arrays))}); {REMEDY}"
        )
    check = _Checker(arrays, place)
    node_feat = check.floats("node_feat", (None, NODE_COLUMNS))
    nodes = len(node_feat)
    if not nodes:
        raise DatasetError(f"{place}: node_feat has no rows; {REMEDY}")
    node_opcode = check.integers("node_opcode", (nodes,), least=0)
    edge_index = check.integers("edge_index", (None, 2), least=0, below=nodes)
    if not is_layout:
        config_feat = check.floats("config_feat", (None, TILE_COLUMNS))
        return TileGraph(
            name=name,
            node_feat=node_feat,
            node_opcode=node_opcode,
            edge_index=edge_index,
            config_feat=config_feat,
            config_runtime=check.runtimes(len(config_feat)),
            config_runtime_normalizers=check.integers(
                "config_runtime_normalizers", (len(config_feat),), least=0, kind=np.int64
            ),
        )
    node_config_ids = check.integers("node_config_ids", (None,), least=0, below=nodes)
    if len(np.unique(node_config_ids)) != len(node_config_ids):
        raise DatasetError(f"{place}: node_config_ids names a node twice; {REMEDY}")
    configs = check.configs(len(node_config_ids))
    splits = np.asarray(arrays.get("node_splits", ()), np.int64).reshape(-1)
    return LayoutGraph(
        name=name,
        node_feat=node_feat,
        node_opcode=node_opcode,
        edge_index=edge_index,
        node_config_ids=node_config_ids,
        configs=configs,
        config_runtime=check.runtimes(len(configs)),
        node_splits=splits,
    )


def write_graph(path: str | Path, graph: LayoutGraph | TileGraph) -> None:
    """Write a file that `read_graph` reads, whole or not at all; an older one is replaced."""
    arrays: dict[str, NDArray[Any]] = {
        "node_feat": graph.node_feat,
        "node_opcode": graph.node_opcode,
        "edge_index": graph.edge_index,
        "config_runtime": graph.config_runtime,
    }
    if isinstance(graph, LayoutGraph):
        arrays |= {
            "node_config_ids": graph.node_config_ids,
            "node_config_feat": graph.node_config_feat,
            "node_splits": graph.node_splits,
        }
    else:
        arrays |= {
            "config_feat": graph.config_feat,
            "config_runtime_normalizers": graph.config_runtime_normalizers,
        }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_open(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


class _Checker:
    """Arrays of one file, each checked as it is taken."""

    def __init__(self, arrays: Mapping[str, Any], place: str) -> None:
        self.arrays, self.place = arrays, place

    def error(self, key: str, reason: str) -> DatasetError:
        return DatasetError(f"{self.place}: {key} {reason}; {REMEDY}")

    def shaped(self, key: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        array = np.asarray(self.arrays[key])
        if array.dtype.kind not in "iufb":
            raise self.error(key, f"is of type {array.dtype}, not numbers")
        fits = array.ndim == len(shape) and all(
            want is None or have == want for have, want in zip(array.shape, shape)
        )
        if not fits:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise self.error(key, f"has shape {array.shape}, not ({wanted})")
        return array

    def floats(self, key: str, shape: tuple[int | None, ...]) -> NDArray[np.float32]:
        array = self.shaped(key, shape).astype(np.float32)
        if not np.isfinite(array).all():
            raise self.error(key, f"has {int((~np.isfinite(array)).sum())} values that are not finite")
        return array

    def integers(
        self,
        key: str,
        shape: tuple[int | None, ...],
        *,
        least: int,
        below: int | None = None,
        kind: type[Any] = np.int32,
    ) -> NDArray[Any]:
        array = self.shaped(key, shape)
        if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
            raise self.error(key, "has values that are no whole numbers")
        if array.size and (array.min() < least or (below is not None and array.max() >= below)):
            end = "" if below is None else f" to {below - 1}"
            raise self.error(key, f"has values of {array.min()} to {array.max()}, not of {least}{end}")
        return array.astype(kind)

    def configs(self, nodes: int) -> NDArray[np.int32]:
        key = "node_config_feat"
        array = self.shaped(key, (None, nodes, None))
        if not array.shape[2] or array.shape[2] % GROUP:
            raise self.error(key, f"has {array.shape[2]} columns, no multiple of {GROUP}")
        try:
            return pack_configs(array)
        except ValueError as error:
            raise self.error(key, f"cannot be packed: {error}") from error

    def runtimes(self, configs: int) -> NDArray[np.int64]:
        if not configs:
            raise self.error("config_runtime", "is of no configuration")
        return self.integers("config_runtime", (configs,), least=0, kind=np.int64)
