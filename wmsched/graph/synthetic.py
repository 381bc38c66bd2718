"""Generated layout graphs whose right order is known: to try the network without TpuGraphs, and to test it.

    runtime(c) = 1 ms + 100 us * (mismatches(c) + weight * deviations(c))

``mismatches`` are edges whose two nodes have different layouts, so a network that does not know the edges
cannot count them. ``deviations`` are nodes that have not their favourite layout. Which one that is stands in
no column of the file: it shows only in what the configurations were drawn from, since each node has its
favourite in three of four of them, as in a collection that a genetic search has left. So a network that sees
one configuration at a time cannot count deviations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wmsched.graph.packing import pack_configs
from wmsched.graph.tpugraphs import LAYOUT_COLUMNS, NODE_COLUMNS, SHAPE_COLUMNS, LayoutGraph

CHANNELS_FIRST, CHANNELS_LAST = (3, 2, 1, 0), (1, 3, 2, 0)  # minor to major
CONVOLUTION, DOT, RESHAPE = 26, 34, 75
ADD, PARAMETER = 2, 63
FAVOURITE_SHARE = 0.75
FLOAT_COLUMN = 2 + 11  # one-hot column of float32

OFFSET_NS, UNIT_NS = 1_000_000, 100_000


def generate_layout(
    *, seed: int, nodes: int = 10, configs: int = 64, deviation_weight: float = 0.7, name: str | None = None
) -> LayoutGraph:
    """Generate a graph.

    Parameters
    ----------
    seed : int
    nodes : int
        Configurable nodes, each with one or two producers among those before it. A quarter more are not.
    configs : int
    deviation_weight : float
        Of a deviation against a mismatch.
    name : str, optional

    Returns
    -------
    LayoutGraph
        Its nodes' layouts are either channels first or channels last, for output and input alike.
    """
    rng = np.random.default_rng([seed, nodes, configs])
    joined = np.array(
        [
            (node, producer)
            for node in range(1, nodes)
            for producer in rng.choice(node, min(node, int(rng.integers(1, 3))), replace=False)
        ],
        np.int32,
    ).reshape(-1, 2)
    favourite = rng.integers(0, 2, nodes)
    choice = np.where(rng.random((configs, nodes)) < FAVOURITE_SHARE, favourite, 1 - favourite)
    mismatches = (choice[:, joined[:, 0]] != choice[:, joined[:, 1]]).sum(1)
    deviations = (choice != favourite).sum(1)
    runtime = OFFSET_NS + UNIT_NS * (mismatches + deviation_weight * deviations)
    others = nodes // 4 + 1  # a parameter and what has no configurable neighbour, which pruning drops
    chain = [(0, nodes), *((number + 1, number) for number in range(nodes, nodes + others - 1))]
    layouts = np.full((2, 6), -1)
    layouts[:, :4] = CHANNELS_FIRST, CHANNELS_LAST
    chosen = layouts[choice]
    return LayoutGraph(
        name=name or f"generated-{seed}",
        node_feat=_features(nodes + others, rng),
        node_opcode=np.concatenate(
            [rng.choice([CONVOLUTION, DOT, RESHAPE], nodes), [PARAMETER], np.full(others - 1, ADD)]
        ).astype(np.int32),
        edge_index=np.concatenate([joined, np.array(chain, np.int32)]),
        node_config_ids=np.arange(nodes, dtype=np.int32),
        configs=pack_configs(np.concatenate([chosen, chosen, np.full_like(chosen, -1)], axis=2)),
        config_runtime=runtime.round().astype(np.int64),
    )


def _features(nodes: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Columns of four-dimensional float32 tensors of random sizes."""
    features = np.zeros((nodes, NODE_COLUMNS), np.float32)
    sizes = 2.0 ** rng.integers(0, 8, (nodes, 4))
    features[:, FLOAT_COLUMN] = 1
    features[:, SHAPE_COLUMNS][:, :4] = sizes
    features[:, 27], features[:, 28] = sizes.sum(1), sizes.prod(1)
    features[:, LAYOUT_COLUMNS][:, :4] = CHANNELS_FIRST
    return features
