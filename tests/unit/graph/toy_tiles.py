"""Small tile kernels whose right order is known."""

from __future__ import annotations

import numpy as np

from wmsched.graph import TileGraph, generate_layout


def make_tile(name: str = "kernel", *, configs: int = 12, nodes: int = 5, seed: int = 0) -> TileGraph:
    """A chain; the runtime grows with the first bound of the output."""
    rng = np.random.default_rng(seed)
    features = generate_layout(seed=seed, nodes=nodes, configs=2).node_feat[:nodes]
    config_feat = rng.integers(1, 64, (configs, 24)).astype(np.float32)
    return TileGraph(
        name=name,
        node_feat=features,
        node_opcode=rng.integers(0, 121, nodes).astype(np.int32),
        edge_index=np.array([(u + 1, u) for u in range(nodes - 1)], np.int32),
        config_feat=config_feat,
        config_runtime=(1000 + 100 * config_feat[:, 8]).astype(np.int64),
        config_runtime_normalizers=np.full(configs, 2000, np.int64),
    )
