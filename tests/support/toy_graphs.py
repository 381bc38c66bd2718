"""Small graphs whose right order is known, and settings to train on them in a moment."""

from __future__ import annotations

import numpy as np

from wmsched.graph import PreparedGraph, Settings, TileGraph, generate_layout, prepare_graph, settings_for

TINY = [
    "network.width=8",
    "training.epochs=3",
    "training.max_configs=8",
    "training.folds=3",
    "training.trained=3",
    "training.kept=2",
    "training.checkpoint_steps=2",
    "training.validate_epochs=1",
    "inference.context=8",
    "inference.permutations=2",
]


def tiny(*options: str, reading: str = "paper", collection: str = "xla-default") -> Settings:
    return settings_for(collection, reading=reading).with_options([*TINY, *options])


def graphs(count: int, *, first: int = 0) -> list[PreparedGraph]:
    return [
        prepare_graph(generate_layout(seed=first + i, nodes=4, configs=12), for_training=True)
        for i in range(count)
    ]


def make_tile(name: str = "kernel", *, configs: int = 12, nodes: int = 5, seed: int = 0) -> TileGraph:
    """A chain; the runtime grows with the first bound of the output."""
    rng = np.random.default_rng(seed)
    features = generate_layout(seed=seed, nodes=nodes, configs=2).node_feat[:nodes]
    config_feat = rng.integers(1, 64, (configs, 24)).astype(np.float32)
    return TileGraph(
        name=name,
        node_feat=features,
        node_opcode=rng.integers(0, 121, nodes).astype(np.int32),
        edge_index=np.array([(u + 1, u) for u in range(nodes - 1)], np.int32).reshape(-1, 2),
        config_feat=config_feat,
        config_runtime=(1000 + 100 * config_feat[:, 8]).astype(np.int64),
        config_runtime_normalizers=np.full(configs, 2000, np.int64),
    )
