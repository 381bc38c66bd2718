"""TGraph (section 2.3.3): scores of a graph's configurations, low for fast.

    R(X) = f_out(mean over nodes(B_2(B_1(f_in(X)))))          Eq 7

X is, for each node, 134 normalised columns, the output's layout (6 places of an embedding of 4 channels), the
node's configuration (18 places of the same embedding) and the opcode's embedding of 16 channels: 246 inputs.

A tile kernel's configurations are no part of X (section 2.2.5, late fusion): the graph is read once, pooled
by maximum and mean, and joined with each configuration. Cross attention then sees one configuration and does
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wmsched.base.errors import DatasetError
from wmsched.graph.config import NetworkConfig
from wmsched.graph.layers import GraphBlock, InputLayer, Messages, half_width, message_edges
from wmsched.graph.prepare import PreparedGraph, column_statistics
from wmsched.graph.tpugraphs import FEATURE_COLUMNS, TILE_COLUMNS

LAYOUT_ROWS = 8  # of the embedding: -2..5
LAYOUT_PLACES = 6
NOT_CONFIGURABLE, EMBEDDING_SHIFT = -2, 2  # value at a node without configurations; -1 is padding


@dataclass(frozen=True, slots=True)
class GraphTensors:
    """A graph on a device: what does not depend on the configuration."""

    features: Tensor  # float32 [n, 134]
    layouts: Tensor  # int64 [n, 6]
    opcodes: Tensor  # int64 [n]
    messages: Messages
    config_nodes: Tensor  # int64 [k]

    @classmethod
    def of(cls, graph: PreparedGraph, config: NetworkConfig, device: str | torch.device = "cpu") -> Self:
        """Move a prepared graph to a device.

        Raises
        ------
        DatasetError
            The graph is of another kind than the network, an opcode has no row in the embedding, or the
            configurations have another width.
        """
        if graph.kind != config.kind:
            raise DatasetError(
                f"{graph.name} is a {graph.kind} graph, the network is for {config.kind} graphs; "
                "take another bundle or --collection"
            )
        most = int(graph.opcodes.max(initial=0))
        if most >= config.opcode_rows:
            raise DatasetError(
                f"{graph.name}: opcode {most} has no row among network.opcode_rows={config.opcode_rows}; "
                "train with more rows"
            )
        columns = 6 * graph.configs.shape[-1]
        if graph.kind == "layout" and columns != config.config_columns:
            raise DatasetError(
                f"{graph.name}: node_config_feat has {columns} columns, the network was made for "
                f"network.config_columns={config.config_columns}; take a bundle trained on such files"
            )
        edges = torch.from_numpy(graph.edges)
        messages = message_edges(edges, len(graph.opcodes), config.edges)
        return cls(
            features=torch.from_numpy(graph.features).to(device),
            layouts=torch.from_numpy(graph.layouts).to(device, torch.int64),
            opcodes=torch.from_numpy(graph.opcodes).to(device),
            messages=Messages(*(t.to(device) for t in (messages.source, messages.target, messages.count))),
            config_nodes=torch.from_numpy(graph.config_nodes).to(device),
        )


class TGraph(nn.Module):
    """The network for either kind of graph.

    Attributes
    ----------
    mean, deviation : [134] buffers that normalise node features, see `fit_columns`
    config_mean, config_deviation : [24] buffers, of a tile network's configurations

    Examples
    --------
    >>> network = TGraph(NetworkConfig())
    >>> graph = prepare_graph(read_graph("resnet50.npz"), for_training=False)
    >>> network.fit_columns([graph])
    >>> scores = network(GraphTensors.of(graph, network.config), torch.from_numpy(graph.configs_at([0, 1])))
    """

    mean: Tensor
    deviation: Tensor
    config_mean: Tensor
    config_deviation: Tensor

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = c = config
        self.is_tile = c.kind == "tile"
        self.register_buffer("mean", torch.zeros(FEATURE_COLUMNS))
        self.register_buffer("deviation", torch.ones(FEATURE_COLUMNS))
        self.layout_embedding = nn.Embedding(LAYOUT_ROWS, c.layout_channels)
        self.opcode_embedding = nn.Embedding(c.opcode_rows, c.opcode_channels)
        inputs = FEATURE_COLUMNS + LAYOUT_PLACES * c.layout_channels + c.opcode_channels
        configurable = 0 if self.is_tile else c.config_columns * c.layout_channels
        inner = half_width(c) if c.input_mlp == "attended" else c.width
        self.linears = nn.ModuleList([nn.Linear(inputs + configurable, inner), nn.Linear(c.width, inner)])
        self.input_layers = nn.ModuleList([InputLayer(c), InputLayer(c)])
        self.blocks = nn.ModuleList([GraphBlock(c) for _ in range(c.blocks)])
        if self.is_tile:
            self.register_buffer("config_mean", torch.zeros(TILE_COLUMNS))
            self.register_buffer("config_deviation", torch.ones(TILE_COLUMNS))
            self.tile_head = TileHead(c)
        else:
            self.leave = nn.Linear(c.width, 1)

    def fit_columns(self, graphs: list[PreparedGraph]) -> None:
        """Set the normalising buffers from the training graphs (section 2.2.5)."""
        self._set("mean", "deviation", column_statistics(graph.features for graph in graphs))
        if self.is_tile:
            tables = (np.asarray(graph.configs, np.float32) for graph in graphs)
            self._set("config_mean", "config_deviation", column_statistics(tables))

    def _set(
        self, mean: str, deviation: str, values: tuple[NDArray[np.float32], NDArray[np.float32]]
    ) -> None:
        for name, value in zip((mean, deviation), values):
            getattr(self, name).copy_(torch.from_numpy(value))

    def forward(self, graph: GraphTensors, configs: Tensor) -> Tensor:
        """Score configurations; a score depends on the others of the call where cross attention is on.

        Parameters
        ----------
        graph : GraphTensors
        configs : integers [B, k, 6 g] of -1..5, or of a tile graph float32 [B, 24]

        Returns
        -------
        float32 [B], low for fast
        """
        states = self._first_layer(graph, None if self.is_tile else configs)
        for number, layer in enumerate(self.input_layers):
            states = layer(states if number == 0 else self.linears[number](states))
        for block in self.blocks:
            states = block(states, graph.messages)
        if not self.is_tile:
            return self.leave(states.mean(1))[:, 0]
        normal = (configs - self.config_mean) / self.config_deviation
        return self.tile_head(states[0], normal)

    def _first_layer(self, graph: GraphTensors, configs: Tensor | None) -> Tensor:
        """The first linear layer on X [B, n, 246].

        Most of X is the same for all configurations, so the layer is applied to that part once, with every
        node as one without configurations; at the configurable nodes the difference is added.
        """
        normal = (graph.features - self.mean) / self.deviation
        layouts = self.layout_embedding(graph.layouts + EMBEDDING_SHIFT).flatten(1)
        fixed = torch.cat([normal, layouts, self.opcode_embedding(graph.opcodes)], dim=1)
        linear = self.linears[0]
        if configs is None:
            return linear(fixed)[None]
        none = self.layout_embedding.weight[NOT_CONFIGURABLE + EMBEDDING_SHIFT].repeat(
            self.config.config_columns
        )
        base = linear(torch.cat([fixed, none.expand(len(fixed), -1)], dim=1))
        chosen = self.layout_embedding(configs.long() + EMBEDDING_SHIFT).flatten(2)  # [B, k, 72]
        added = (chosen - none) @ linear.weight[:, fixed.shape[1] :].T
        states = base.expand(len(configs), -1, -1)
        return states.index_add(1, graph.config_nodes, added.to(states.dtype))


class TileHead(nn.Module):
    """Late fusion: node states [n, C] and configurations [B, 24] to scores [B]."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        c, dropout = config.width, config.dropout
        self.configs = nn.Sequential(
            nn.Linear(TILE_COLUMNS, c), nn.Dropout(dropout), nn.GELU(), nn.Linear(c, c), nn.GELU()
        )
        self.joined = nn.Sequential(
            nn.Linear(3 * c, c), nn.Dropout(dropout), nn.GELU(), nn.Linear(c, c), nn.GELU(), nn.Linear(c, 1)
        )

    def forward(self, states: Tensor, configs: Tensor) -> Tensor:
        pooled = torch.cat([states.amax(0), states.mean(0)])
        joined = torch.cat([self.configs(configs), pooled.expand(len(configs), -1)], dim=1)
        return self.joined(joined)[:, 0]


def pairwise_hinge_loss(scores: Tensor, runtimes: Tensor, *, reduction: str = "sum") -> Tensor:
    """Pairwise hinge loss (Eq 8).

    sum_ij [r_i > r_j] max(0, 1 - (s_i - s_j))

    Parameters
    ----------
    scores, runtimes : [c]
    reduction : str
        "sum" over the pairs (paper), or "mean" over all c * c (code), of which half or more are zero.
    """
    slower = runtimes[:, None] > runtimes[None, :]
    hinge = torch.relu(1 - (scores[:, None] - scores[None, :])) * slower
    return hinge.sum() if reduction == "sum" else hinge.mean()


def count_parameters(network: nn.Module) -> int:
    """Return the number of trained values."""
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
