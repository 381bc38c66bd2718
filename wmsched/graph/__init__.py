"""TGraph as published (arXiv 2405.16623): ranks configurations of whole graphs, on TpuGraphs' data format.

>>> ranker = GraphRanker.load("bundles/xla-default")
>>> graph = read_graph("npz/layout/xla/default/valid/resnet50.4x4.fp16.npz")
>>> fastest = ranker.score(graph).argmin()

Scores are low for fast. Importing this package loads neither PyTorch nor NumPy; its names do when they are
used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wmsched.graph.collection import load_split, read_indices
    from wmsched.graph.config import NetworkConfig, Settings, settings_for
    from wmsched.graph.ensemble import GraphRanker
    from wmsched.graph.evaluate import evaluate_graphs, summarize
    from wmsched.graph.metrics import best_of, kendall_tau, slowdown, tile_score
    from wmsched.graph.network import GraphTensors, TGraph, pairwise_hinge_loss
    from wmsched.graph.packing import pack_configs, unpack_configs
    from wmsched.graph.prepare import PreparedGraph, prepare_graph
    from wmsched.graph.synthetic import generate_layout
    from wmsched.graph.tpugraphs import LayoutGraph, TileGraph, read_graph, write_graph
    from wmsched.graph.train import plan_members, train_ensemble

_HOMES = {
    "LayoutGraph": "tpugraphs",
    "TileGraph": "tpugraphs",
    "read_graph": "tpugraphs",
    "write_graph": "tpugraphs",
    "pack_configs": "packing",
    "unpack_configs": "packing",
    "PreparedGraph": "prepare",
    "prepare_graph": "prepare",
    "load_split": "collection",
    "read_indices": "collection",
    "generate_layout": "synthetic",
    "Settings": "config",
    "NetworkConfig": "config",
    "settings_for": "config",
    "TGraph": "network",
    "GraphTensors": "network",
    "pairwise_hinge_loss": "network",
    "plan_members": "train",
    "train_ensemble": "train",
    "GraphRanker": "ensemble",
    "evaluate_graphs": "evaluate",
    "summarize": "evaluate",
    "kendall_tau": "metrics",
    "slowdown": "metrics",
    "tile_score": "metrics",
    "best_of": "metrics",
}

__all__ = [
    "LayoutGraph",
    "TileGraph",
    "read_graph",
    "write_graph",
    "pack_configs",
    "unpack_configs",
    "PreparedGraph",
    "prepare_graph",
    "load_split",
    "read_indices",
    "generate_layout",
    "Settings",
    "NetworkConfig",
    "settings_for",
    "TGraph",
    "GraphTensors",
    "pairwise_hinge_loss",
    "plan_members",
    "train_ensemble",
    "GraphRanker",
    "evaluate_graphs",
    "summarize",
    "kendall_tau",
    "slowdown",
    "tile_score",
    "best_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
