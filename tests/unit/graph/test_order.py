"""Generated graphs whose right order is known: the network finds it, and its ablations lose what they must.

The ablations lose in the paper's order (Table 3): edges more than cross attention. What each cannot know is
by construction, see `wmsched.graph.synthetic`; that edges are worth more is the weight given to deviations
there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wmsched.graph import generate_layout, kendall_tau, prepare_graph, settings_for
from wmsched.graph.synthetic import OFFSET_NS, UNIT_NS
from wmsched.graph.train import Member, train_member

OPTIONS = [
    "network.width=32",
    "network.dropout=0.0",
    "training.max_configs=32",
    "training.learning_rate=0.006",
    "training.validate_epochs=1000",
    "training.checkpoint_steps=100000",
    "inference.context=32",
    "inference.permutations=4",
]
SEEDS = (0, 100, 200)


def held_out_tau(folder: Path, *options: str, reading: str, seed: int = 0) -> float:
    """Tau on graphs of which none was trained on."""
    settings = settings_for("xla-default", reading=reading).with_options([*OPTIONS, *options])
    train = [prepare_graph(generate_layout(seed=seed + i), for_training=True) for i in range(48)]
    held_out = [prepare_graph(generate_layout(seed=5000 + i), for_training=False) for i in range(24)]
    checkpoint = folder / "-".join([reading, str(seed), *options])
    return train_member(Member("m", seed, train, held_out), settings, checkpoint=checkpoint)[1]


def test_runtimes_are_those_of_the_formula() -> None:
    graph = generate_layout(seed=4, nodes=6, configs=50, deviation_weight=0)
    last = graph.node_config_feat[:, :, 0] == 1  # minor to major: channels last
    joined = [edge for edge in graph.edge_index if set(edge.tolist()) <= set(range(6))]
    mismatches = sum((last[:, u] != last[:, v]).astype(int) for u, v in joined)
    np.testing.assert_array_equal(graph.config_runtime, OFFSET_NS + UNIT_NS * mismatches)
    # with deviations, half the runtime's order is in no column: the favourite is the more frequent layout
    weighed = generate_layout(seed=4, nodes=6, configs=50, deviation_weight=0.7)
    deviations = (last != (last.mean(0) > 0.5)).sum(1)
    np.testing.assert_array_equal(weighed.config_runtime, graph.config_runtime + 70_000 * deviations)


def test_what_the_ablations_can_know_at_most() -> None:
    """The two parts of the runtime alone, as an oracle would count them: mismatches are worth more."""
    parts = {"mismatches": [], "deviations": []}
    for seed in range(30):
        both, one = (generate_layout(seed=seed, deviation_weight=weight) for weight in (0.7, 0))
        parts["mismatches"].append(kendall_tau(one.config_runtime, both.config_runtime))
        rest = both.config_runtime - one.config_runtime
        parts["deviations"].append(kendall_tau(rest, both.config_runtime))
    assert 0.85 > np.mean(parts["mismatches"]) > np.mean(parts["deviations"]) + 0.1


def test_edges_and_cross_attention_are_needed_to_find_the_order(tmp_path: Path) -> None:
    short = "training.epochs=6"
    full = held_out_tau(tmp_path, short, reading="code")
    no_cross = held_out_tau(tmp_path, short, "network.cross_attention=false", reading="code")
    no_edges = held_out_tau(tmp_path, short, "network.edges=none", reading="code")
    assert full > 0.62
    assert full > no_cross + 0.08
    assert no_cross > no_edges + 0.08


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["paper", "code"])
def test_ablations_lose_in_the_papers_order_over_three_seeds(tmp_path: Path, reading: str) -> None:
    ablations = {
        "full": (),
        "no cross attention": ("network.cross_attention=false",),
        "no edges": ("network.edges=none",),
    }
    taus = {
        name: [held_out_tau(tmp_path, "training.epochs=30", *o, reading=reading, seed=s) for s in SEEDS]
        for name, o in ablations.items()
    }
    full, no_cross, no_edges = (np.array(values) for values in taus.values())
    assert full.mean() > 0.7, taus
    assert (full > no_cross).all(), taus
    assert (no_cross > no_edges).all(), taus
    assert full.mean() - no_edges.mean() > full.mean() - no_cross.mean() > 0.05, taus
