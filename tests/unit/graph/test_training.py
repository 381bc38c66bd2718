"""Training: members, resuming, what is drawn and scored, real graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_graphs import graphs, tiny
from tpu_records import read_layout_record, read_tile_records

from wmsched.base.errors import BundleError, DatasetError
from wmsched.graph import PreparedGraph, TGraph, generate_layout, plan_members, prepare_graph, train_ensemble
from wmsched.graph import train as module
from wmsched.graph.collection import split_folds
from wmsched.graph.config import InferenceConfig, TrainingConfig
from wmsched.graph.ensemble import score_graph
from wmsched.graph.train import Member, draw_configs, held_out_score, learning_rate, train_member


def weights(network: TGraph) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in network.state_dict().values()]


class Killed(Exception):
    pass


def stop_at(step: int) -> Callable[[int], None]:
    def on_step(number: int) -> None:
        if number == step:
            raise Killed

    return on_step


@pytest.mark.parametrize("reading", ["paper", "code"])
def test_a_resumed_member_is_bit_for_bit_the_undisturbed_one(tmp_path: Path, reading: str) -> None:
    settings, member = tiny(reading=reading), Member("m", 5, graphs(3), graphs(2, first=50))
    lines: list[dict] = []
    whole, score = train_member(member, settings, checkpoint=tmp_path / "a", log=lines.append)
    assert [line["step"] for line in lines] == [3, 6, 9]
    again: list[dict] = []
    for step in (1, 3, 4, 7, 9):  # before the first checkpoint, at one, between two, at the end
        with pytest.raises(Killed):
            train_member(member, settings, checkpoint=tmp_path / "b", log=again.append, on_step=stop_at(step))
    resumed, second = train_member(member, settings, checkpoint=tmp_path / "b")
    for one, other in zip(weights(whole), weights(resumed)):
        np.testing.assert_array_equal(one, other)
    assert second == score
    assert lines == [next(line for line in again[::-1] if line["step"] == step) for step in (3, 6, 9)]


def test_checkpoints_of_other_settings_or_data_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    member, path = Member("m", 0, graphs(2), []), tmp_path / "c"
    train_member(member, tiny(), checkpoint=path)
    with pytest.raises(BundleError, match=r"settings.network.edges \(was 'both', is 'none'\)"):
        train_member(member, tiny("network.edges=none"), checkpoint=path)
    with pytest.raises(BundleError, match=r"train .*choose another output, or delete it to start anew"):
        train_member(Member("m", 0, graphs(2, first=9), []), tiny(), checkpoint=path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BundleError, match=r"no usable checkpoint .*delete it to start anew"):
        train_member(member, tiny(), checkpoint=path)


def test_folds_divide_by_graph_and_seeds_hold_out_the_validation_split() -> None:
    assert sorted(np.concatenate(split_folds(11, 4, seed=1)).tolist()) == list(range(11))
    train, valid = graphs(5), graphs(2, first=90)
    members = plan_members(train, valid, TrainingConfig(folds=7, trained=3, kept=2))
    assert [member.name for member in members] == ["fold-0", "fold-1", "fold-2"]
    names = {graph.name for graph in [*train, *valid]}
    for member in members:
        inside, outside = ({graph.name for graph in part} for part in (member.train, member.held_out))
        assert len(outside) == 1 and not inside & outside and inside | outside == names
    members = plan_members(train, valid, TrainingConfig(members="seeds", trained=2, kept=1))
    assert [member.seed for member in members] == [0, 1]
    assert all(member.held_out == valid and len(member.train) == 5 for member in members)
    with pytest.raises(DatasetError, match=r"5 graphs cannot be split into 20 folds.*training.folds"):
        plan_members(train, [], TrainingConfig())
    equal = prepare_graph(generate_layout(seed=0, nodes=4, configs=1), for_training=True)
    with pytest.raises(DatasetError, match="no training graph has two configurations"):
        plan_members([equal], [], TrainingConfig(members="seeds"))


def test_the_best_members_are_kept_and_their_scores_averaged(tmp_path: Path) -> None:
    members = plan_members(graphs(6), [], tiny().training)
    ranker = train_ensemble(members, tiny(), folder=tmp_path)
    scores = ranker.record["scores"]
    assert sorted(scores, key=scores.get)[::-1][:2] == ranker.record["kept"]
    assert ranker.record["score"] == pytest.approx(np.mean(sorted(scores.values())[1:]))
    graph = graphs(1, first=70)[0]
    parts = [score_graph(network, graph, InferenceConfig(8, 2)) for network in ranker.networks]
    np.testing.assert_allclose(ranker.score(graph), np.mean(parts, axis=0))


def test_permutations_are_averaged_back_in_the_order_of_the_file() -> None:
    graph = graphs(1)[0]
    torch.manual_seed(0)
    network = TGraph(tiny().network).eval()
    network.fit_columns([graph])
    total, count = np.zeros(len(graph)), len(graph)
    for number in range(3):
        order = np.random.default_rng(number).permutation(count)
        for rows in np.array_split(order, -(-count // 4)):
            total[rows] += score_graph(network, graph_of(graph, rows), InferenceConfig(100, 1))
    found = score_graph(network, graph, InferenceConfig(4, 3))
    np.testing.assert_allclose(found, total / 3, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found, score_graph(network, graph, InferenceConfig(4, 3)))


def graph_of(graph: PreparedGraph, rows: np.ndarray) -> PreparedGraph:
    return PreparedGraph(**{**vars(graph), "configs": graph.configs[rows], "runtimes": graph.runtimes[rows]})


def test_configurations_are_drawn_without_replacement() -> None:
    graph, rng = graphs(1)[0], np.random.default_rng(0)
    assert len(set(draw_configs(graph, 5, rng).tolist())) == 5
    assert sorted(draw_configs(graph, 64, rng).tolist()) == list(range(len(graph)))


def test_the_rate_warms_up_and_ends_where_it_is_told() -> None:
    training = TrainingConfig(learning_rate=1.0)
    rates = [learning_rate(step, 1000, training) for step in range(1000)]
    assert rates[0] < 0.03 and np.argmax(rates) == 50 and max(rates) == 1
    assert (np.diff(rates[:51]) > 0).all() and (np.diff(rates[50:]) < 0).all()
    assert rates[-1] < 1e-4 and rates[525] == pytest.approx(0.5, abs=1e-6)
    lifted = TrainingConfig(learning_rate=1.0, final_share=0.25)
    assert learning_rate(999, 1000, lifted) == pytest.approx(0.25, abs=1e-3)


def test_training_in_bfloat16_goes_on(tmp_path: Path) -> None:
    for reading in ("paper", "code"):
        settings = tiny("training.precision=bfloat16", reading=reading)
        member = Member("m", 0, graphs(2), graphs(1, first=9))
        network, score = train_member(member, settings, checkpoint=tmp_path / reading)
        assert np.isfinite(score) and all(np.isfinite(values).all() for values in weights(network))


def test_a_held_out_graph_is_scored_on_so_many_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seen = graphs(1)[0], []
    torch.manual_seed(0)
    network = TGraph(tiny().network).eval()
    monkeypatch.setattr(module, "score_graph", lambda n, g, i: seen.append(len(g)) or np.arange(len(g)))
    for most in (0, 5, 1000):
        held_out_score(network, [graph], tiny(f"training.held_out_configs={most}"))
    assert seen == [len(graph), 5, len(graph)]


def test_real_graphs_are_trained_on(records: Path, tmp_path: Path) -> None:
    """The loss falls; one graph says nothing about others."""
    layout, _ = read_layout_record(records / "module_tuning_data_layout.pb")
    tiles = read_tile_records(records / "op_tuning_data.pb")
    for collection, chosen, epochs in (("xla-default", [layout], 60), ("tile-xla", tiles[:3], 21)):
        data = [prepare_graph(graph, for_training=True) for graph in chosen]
        options = ["training.max_configs=32", "training.learning_rate=0.005", "network.dropout=0.0"]
        options += [f"training.epochs={epochs}", f"training.validate_epochs={epochs / 3}", "network.width=16"]
        settings = tiny(*options, reading="code", collection=collection)
        lines: list[dict] = []
        checkpoint = tmp_path / collection
        train_member(Member("m", 0, data, data), settings, checkpoint=checkpoint, log=lines.append)
        assert lines[-1]["loss"] < 0.95 * lines[0]["loss"], lines


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpu_trains_resumes_and_scores_as_a_cpu_does(tmp_path: Path, precision: str) -> None:
    settings, member = tiny(f"training.precision={precision}"), Member("m", 0, graphs(3), graphs(2, first=50))
    with pytest.raises(Killed):
        train_member(member, settings, checkpoint=tmp_path / "c", device="cuda", on_step=stop_at(5))
    network, score = train_member(member, settings, checkpoint=tmp_path / "c", device="cuda")
    assert network.mean.is_cuda and np.isfinite(score)
    on_gpu = score_graph(network, member.held_out[0], settings.inference)
    on_cpu = score_graph(network.cpu(), member.held_out[0], settings.inference)
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-2, atol=1e-3)
