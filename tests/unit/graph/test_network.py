"""The network against the paper's equations, written out node by node in NumPy, in both readings."""

from __future__ import annotations

from dataclasses import replace
from math import erf

import numpy as np
import pytest
import torch
from toy_graphs import make_tile

from wmsched.base.errors import DatasetError
from wmsched.graph import GraphTensors, NetworkConfig, TGraph, generate_layout, prepare_graph, settings_for
from wmsched.graph.config import READINGS, PreparationConfig, Settings
from wmsched.graph.layers import message_edges
from wmsched.graph.network import count_parameters
from wmsched.graph.prepare import PreparedGraph

SMALL = ["network.width=8", "network.squeeze=2", "network.opcode_channels=3", "network.layout_channels=2"]


def small(reading: str = "paper", *options: str, collection: str = "xla-default") -> NetworkConfig:
    return settings_for(collection, reading=reading).with_options([*SMALL, *options]).network


def small_graph(*, nodes: int = 4, configs: int = 5, seed: int = 2) -> PreparedGraph:
    config = PreparationConfig(prune=False)
    return prepare_graph(generate_layout(seed=seed, nodes=nodes, configs=configs), config, for_training=False)


def fresh(config: NetworkConfig, graph: PreparedGraph) -> TGraph:
    torch.manual_seed(1)
    network = TGraph(config).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "temperature" not in name:
                parameter.normal_(0, 0.4)
    network.fit_columns([graph])
    return network.eval()


def scores_of(network: TGraph, graph: PreparedGraph, rows: list[int] | None = None) -> np.ndarray:
    chosen = np.arange(len(graph)) if rows is None else np.array(rows)
    configs = torch.from_numpy(graph.configs_at(chosen))
    with torch.no_grad():
        return network(GraphTensors.of(graph, network.config), configs).numpy()


class ByHand:
    """Equations 2 to 7 for one graph, with loops over configurations and nodes."""

    def __init__(self, network: TGraph, graph: PreparedGraph) -> None:
        self.c, self.graph = network.config, graph
        self.w = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        y = self.w[f"{name}.weight"] @ x
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def inputs(self, configs: np.ndarray | None, b: int, node: int) -> np.ndarray:
        g, table = self.graph, self.w["layout_embedding.weight"]
        parts = [(g.features[node] - self.w["mean"]) / self.w["deviation"]]
        parts += [table[layout + 2] for layout in g.layouts[node]]
        parts.append(self.w["opcode_embedding.weight"][g.opcodes[node]])
        if configs is not None:
            own = [k for k, other in enumerate(g.config_nodes) if other == node]
            row = configs[b, own[0]] if own else [-2] * self.c.config_columns
            parts += [table[value + 2] for value in row]
        return np.concatenate(parts)

    def neighbours(self, node: int) -> list[int]:
        edges = [tuple(edge) for edge in self.graph.edges.tolist()]
        if self.c.edges == "none":
            return []
        if self.c.edges == "to_producers":
            return [u for u, v in edges if v == node]
        if self.c.edges == "to_consumers":
            return [v for u, v in edges if u == node]
        return sorted({u for u, v in edges if v == node} | {v for u, v in edges if u == node})

    def norm(self, x: np.ndarray) -> np.ndarray:
        if x.shape[1] < 2:
            return x
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)

    def sage(self, name: str, x: np.ndarray) -> np.ndarray:
        out = []
        for b in range(len(x)):
            sent = x[b]
            if self.c.project:
                sent = np.array([np.maximum(self.linear(f"{name}.project", e), 0) for e in x[b]])
            for i, e in enumerate(x[b]):
                total = np.zeros_like(e)
                near = self.neighbours(i)
                for j in near:
                    total = total + sent[j]
                if self.c.aggregate == "mean" and near:
                    total = total / len(near)
                y = self.linear(f"{name}.own", e) + self.linear(f"{name}.neighbours", total)
                out.append(y / max(np.sqrt((y**2).sum()), 1e-12) if self.c.l2_norm else y)
        return np.array(out).reshape(len(x), x.shape[1], -1)

    def attend(self, name: str, x: np.ndarray) -> np.ndarray:
        place = 0
        if self.c.channel_attention:
            gates = np.empty_like(x)
            for index in np.ndindex(x.shape[:2]):
                hidden = np.maximum(self.linear(f"{name}.{place}.down", x[index]), 0)
                gates[index] = 1 / (1 + np.exp(-self.linear(f"{name}.{place}.up", hidden)))
            x, place = x * gates, place + 1
        if self.c.cross_attention:
            power = np.exp(x / self.w[f"{name}.{place}.temperature"])
            x = np.concatenate([x, x * power / power.sum(0)], axis=2)
        return x

    def states(self, configs: np.ndarray | None) -> np.ndarray:
        count, nodes = (1 if configs is None else len(configs)), len(self.graph.opcodes)
        x = np.array([[self.inputs(configs, b, i) for i in range(nodes)] for b in range(count)])
        for number in range(2):
            x = np.array([[self.linear(f"linears.{number}", e) for e in row] for row in x])
            if self.c.input_mlp == "attended":
                x = self.attend(f"input_layers.{number}.attentions", self.norm(x))
            x = gelu(x)
        for number in range(self.c.blocks):
            eta = self.attend(
                f"blocks.{number}.attentions", self.sage(f"blocks.{number}.convolution", self.norm(x))
            )
            x = gelu(x + eta) if self.c.activation == "after_sum" else x + gelu(eta)
        return x

    def layout_scores(self) -> np.ndarray:
        states = self.states(self.graph.configs_at(np.arange(len(self.graph))))
        return np.array([self.linear("leave", row.mean(0))[0] for row in states])

    def tile_scores(self) -> np.ndarray:
        states, out = self.states(None)[0], []
        for config in np.asarray(self.graph.configs, np.float64):
            x = (config - self.w["config_mean"]) / self.w["config_deviation"]
            x = gelu(self.linear("tile_head.configs.3", gelu(self.linear("tile_head.configs.0", x))))
            y = np.concatenate([x, states.max(0), states.mean(0)])
            y = gelu(self.linear("tile_head.joined.3", gelu(self.linear("tile_head.joined.0", y))))
            out.append(self.linear("tile_head.joined.5", y)[0])
        return np.array(out)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


VARIANTS = [
    *((reading, option) for reading in READINGS for option in ((), ("network.cross_attention=false",))),
    ("paper", ("network.channel_attention=false",)),
    ("paper", ("network.edges=none",)),
    ("paper", ("network.edges=to_consumers", "network.aggregate=mean")),
    ("paper", ("network.l2_norm=false", "network.activation=after_sum")),
    ("paper", ("network.project=false",)),
    ("paper", ("network.input_mlp=attended", "network.blocks=3")),
    ("code", ("network.edges=both", "network.aggregate=sum")),
]


@pytest.mark.parametrize(("reading", "options"), VARIANTS, ids=[f"{r}-{'-'.join(o)}" for r, o in VARIANTS])
def test_forward_is_the_equations_by_hand(reading: str, options: tuple[str, ...]) -> None:
    graph = small_graph()
    network = fresh(small(reading, *options), graph)
    expected = ByHand(network, graph).layout_scores()
    assert np.ptp(expected) > 1e-6
    np.testing.assert_allclose(scores_of(network, graph), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("reading", READINGS)
def test_the_tile_network_is_the_equations_by_hand(reading: str) -> None:
    graph = prepare_graph(make_tile(), for_training=False)
    np.testing.assert_allclose(graph.runtimes, (1000 + 100 * graph.configs[:, 8]) / (2000 + 1e-5))
    network = fresh(small(reading, collection="tile-xla"), graph)
    np.testing.assert_allclose(
        scores_of(network, graph), ByHand(network, graph).tile_scores(), rtol=1e-6, atol=1e-9
    )


def test_cross_attention_does_nothing_in_a_tile_network() -> None:
    """Its graph layers see one configuration, whose softmax is 1: a tile's score is its own."""
    graph = prepare_graph(make_tile(), for_training=False)
    network = fresh(small(collection="tile-xla"), graph)
    np.testing.assert_allclose(scores_of(network, graph, [3]), scores_of(network, graph)[[3]])


@pytest.mark.parametrize(
    ("collection", "cross", "expected"),
    [("xla-default", True, 215_013), ("xla-random", False, 460_577), ("nlp-default", True, 215_013)],
)
def test_the_published_code_has_so_many_parameters(collection: str, cross: bool, expected: int) -> None:
    config = settings_for(collection, reading="code").network
    assert config.cross_attention is cross  # its scripts for random collections have none
    assert count_parameters(TGraph(config)) == expected


def test_the_code_without_cross_attention_has_460577_parameters() -> None:
    config = replace(settings_for("xla-default", reading="code").network, cross_attention=False)
    assert count_parameters(TGraph(config)) == 460_577


def test_the_papers_equations_alone_have_as_many_parameters_as_the_docs_say() -> None:
    config = settings_for("xla-default").network
    assert count_parameters(TGraph(config)) == 402_643
    assert count_parameters(TGraph(replace(config, cross_attention=False))) == 558_833


def test_the_inputs_are_246_columns() -> None:
    assert TGraph(NetworkConfig()).linears[0].in_features == 246


def test_scores_follow_their_configurations_in_any_order() -> None:
    graph = small_graph(configs=7)
    network = fresh(small(), graph)
    order = [4, 0, 6, 2, 5, 1, 3]
    np.testing.assert_allclose(scores_of(network, graph, order), scores_of(network, graph)[order])


def test_a_score_depends_on_the_others_only_with_cross_attention() -> None:
    graph = small_graph(configs=7)
    for cross in (True, False):
        network = fresh(small("paper", f"network.cross_attention={str(cross).lower()}"), graph)
        alone, among = scores_of(network, graph, [2, 3])[0], scores_of(network, graph)[2]
        assert bool(abs(alone - among) > 1e-6) is cross


def test_numbers_of_nodes_mean_nothing() -> None:
    """Renumbered nodes get the same scores."""
    graph = small_graph()
    network = fresh(small(), graph)
    nodes = len(graph.opcodes)
    new = np.random.default_rng(0).permutation(nodes)  # new[i]: number of the old node i
    old = np.argsort(new)
    renamed = replace(
        graph,
        features=graph.features[old],
        layouts=graph.layouts[old],
        opcodes=graph.opcodes[old],
        edges=new[graph.edges],
        config_nodes=new[graph.config_nodes],
    )
    np.testing.assert_allclose(scores_of(network, renamed), scores_of(network, graph))


@pytest.mark.parametrize("reading", READINGS)
def test_a_graph_of_one_node_is_scored_and_trained_on(reading: str) -> None:
    """Over one node an instance norm would be 0 throughout, and PyTorch's own raises."""
    graph = small_graph()
    one = replace(
        graph,
        features=graph.features[:1],
        layouts=graph.layouts[:1],
        opcodes=graph.opcodes[:1],
        edges=graph.edges[:0],
        config_nodes=graph.config_nodes[:1],
        configs=graph.configs[:, :1],
    )
    network = fresh(small(reading), graph)
    network.train()
    scores = network(GraphTensors.of(one, network.config), torch.from_numpy(one.configs_at(np.arange(5))))
    assert torch.isfinite(scores).all() and scores.std() > 0
    scores.sum().backward()


def test_the_smallest_graphs_are_scored() -> None:
    layout = generate_layout(seed=0, nodes=4, configs=5)
    fixed = replace(layout, node_config_ids=layout.node_config_ids[:0], configs=layout.configs[:, :0])
    alone = replace(layout, configs=layout.configs[:1], config_runtime=layout.config_runtime[:1])
    for graph in (fixed, alone, make_tile(nodes=1), make_tile(nodes=2, configs=1)):
        prepared = prepare_graph(graph, for_training=False)
        collection = "xla-default" if prepared.kind == "layout" else "tile-xla"
        assert np.isfinite(scores_of(fresh(small(collection=collection), prepared), prepared)).all()


def test_neighbours_are_a_set_and_directions_are_named() -> None:
    edges = torch.tensor([[1, 0], [0, 1], [2, 1], [2, 1]])  # 1 consumes 0, ...
    both = message_edges(edges, 3, "both")
    assert sorted(zip(both.source.tolist(), both.target.tolist())) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert both.count.tolist() == [1, 2, 1]
    back = message_edges(edges[2:3], 3, "to_producers")
    assert (back.source.tolist(), back.target.tolist()) == ([2], [1])
    assert message_edges(edges, 3, "none").count.tolist() == [0, 0, 0]


def test_graphs_that_do_not_fit_are_refused_with_a_remedy() -> None:
    graph = small_graph()
    with pytest.raises(DatasetError, match=r"opcode 63 has no row among network.opcode_rows=50"):
        GraphTensors.of(graph, small("paper", "network.opcode_rows=50"))
    with pytest.raises(DatasetError, match="is a layout graph, the network is for tile graphs"):
        GraphTensors.of(graph, small(collection="tile-xla"))
    with pytest.raises(DatasetError, match="has 18 columns, the network was made for"):
        GraphTensors.of(graph, small("paper", "network.config_columns=24"))


def test_settings_refuse_what_they_do_not_know() -> None:
    settings = settings_for("nlp-random", reading="code")
    assert Settings.from_json(settings.to_json()) == settings
    assert settings_for("tile-xla").training.epochs == 17.5
    assert settings_for("nlp-random").training.max_configs == 128
    for options, message in (
        (["network.depth=3"], "'network.depth=3' is no option"),
        (["width=3"], "no option"),
        (["network.width"], "no option"),
        (["network.width=7"], "width=7 must be even"),
        (["network.width=wide"], "network.width=wide must be int"),
        (["network.cross_attention=1"], "must be bool"),
        (["network.edges=all"], "edges='all' is none of both"),
        (["training.kept=9"], "kept=9 is more than trained=5"),
        (["training.epochs=0"], "epochs=0 must be above 0"),
        (["training.max_configs=1"], "max_configs=1 must be at least 2"),
        (["network.config_columns=20"], "multiple of 6"),
        (["network.dropout=1.0"], "dropout=1.0"),
        (["inference.context=0"], "context=0"),
    ):
        with pytest.raises(ValueError, match=message):
            settings_for("xla-default").with_options(options)
    for collection, reading in (("xla", "paper"), ("xla-random", "book")):
        with pytest.raises(ValueError, match="is none of"):
            settings_for(collection, reading=reading)
