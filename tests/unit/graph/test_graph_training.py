"""Training: members, resuming after a kill, bundles, commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_tiles import make_tile
from typer.testing import CliRunner

from wmsched.cli import app
from wmsched.errors import BundleError, DatasetError
from wmsched.graph import (
    GraphRanker,
    TGraph,
    generate_layout,
    plan_members,
    prepare_graph,
    settings_for,
    train_ensemble,
    write_graph,
)
from wmsched.graph import train as module
from wmsched.graph.collection import split_folds
from wmsched.graph.command import app as graph_app
from wmsched.graph.config import InferenceConfig, Settings, TrainingConfig
from wmsched.graph.ensemble import score_graph
from wmsched.graph.prepare import PreparedGraph
from wmsched.graph.train import Member, draw_configs, held_out_score, learning_rate, train_member
from wmsched.locks import locked

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


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tiny(*options: str, reading: str = "paper", collection: str = "xla-default") -> Settings:
    return settings_for(collection, reading=reading).with_options([*TINY, *options])


def graphs(count: int, *, first: int = 0) -> list[PreparedGraph]:
    return [
        prepare_graph(generate_layout(seed=first + i, nodes=4, configs=12), for_training=True)
        for i in range(count)
    ]


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


TRAIN = """
import torch; torch.set_num_threads(1)
import sys
from wmsched.graph.command import app
app(sys.argv[1:])
"""


def test_a_killed_command_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    for i in range(4):
        write_graph(tmp_path / "data" / "train" / f"{i}.npz", generate_layout(seed=i, nodes=4, configs=12))
    options = [*TINY, "training.epochs=9", "training.validate_epochs=3", "training.checkpoint_steps=7"]

    def arguments(name: str) -> list[str]:
        run = ["train", "--data", str(tmp_path / "data"), "--out", str(tmp_path / name), "--device", "cpu"]
        return [*run, *(text for option in options for text in ("--set", option))]

    def trained(name: str) -> dict[str, bytes]:
        result = CliRunner().invoke(graph_app, arguments(name))
        assert result.exit_code == 0, result.output
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    undisturbed = trained("a")
    process = subprocess.Popen(
        [sys.executable, "-c", TRAIN, *arguments("b")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:  # killed in the second member
        if line.startswith("member fold-1"):
            break
    process.kill()
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "b.training" / "fold-0.safetensors").is_file()
    assert trained("b") == undisturbed and len(undisturbed) == 2


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


@pytest.mark.parametrize("collection", ["xla-default", "tile-xla"])
def test_a_bundle_is_a_folder_without_pickle_and_scores_alike(tmp_path: Path, collection: str) -> None:
    is_tile = collection == "tile-xla"
    tiles = [prepare_graph(make_tile(f"k{i}", seed=i), for_training=True) for i in range(6)]
    data = tiles if is_tile else graphs(6)
    settings = tiny(collection=collection)
    ranker = train_ensemble(plan_members(data, [], settings.training), settings, folder=tmp_path / "t")
    ranker.save(tmp_path / "b")
    ranker.save(tmp_path / "b")
    assert sorted(path.suffix for path in (tmp_path / "b").iterdir()) == [".json", ".safetensors"]
    loaded = GraphRanker.load(tmp_path / "b")
    assert loaded.settings == settings and loaded.record == ranker.record
    np.testing.assert_array_equal(loaded.score(data[0]), ranker.score(data[0]))


def test_bad_bundles_are_refused(tmp_path: Path) -> None:
    GraphRanker(tiny(), [TGraph(tiny().network)]).save(tmp_path)
    config = tmp_path / "config.json"
    good = json.loads(config.read_text())
    for change, message in (
        ({"format_version": 9}, "graph bundle format 9, this library reads 1"),
        ({"kind": "trees"}, "is of no graph bundle"),
        ({"members": 2}, "no usable graph bundle .*train or copy it again"),
        ({"settings": good["settings"] | {"more": {}}}, "graph settings have parts"),
        ({"settings": good["settings"] | {"network": {"depth": 1}}}, r"unknown network settings \['depth'\]"),
        ({"settings": good["settings"] | {"network": {"edges": "all"}}}, "edges='all' is none of"),
    ):
        config.write_text(json.dumps(good | change))
        with pytest.raises(BundleError, match=message):
            GraphRanker.load(tmp_path)
    with pytest.raises(BundleError, match="no usable graph bundle"):
        GraphRanker.load(tmp_path / "none")


def test_the_commands_train_evaluate_and_score(tmp_path: Path) -> None:
    for i in range(6):
        split = "valid" if i > 3 else "train"
        write_graph(tmp_path / "d" / split / f"g{i}.npz", generate_layout(seed=i, nodes=4, configs=12))
    data, bundle = str(tmp_path / "d"), str(tmp_path / "b")
    options = [text for option in TINY for text in ("--set", option)]
    run = CliRunner()
    result = run.invoke(app, ["graph", "train", "--data", data, "--out", bundle, "--device", "cpu", *options])
    assert result.exit_code == 0, result.output
    assert "held-out tau of the 2 networks kept" in result.output
    (tmp_path / "i.json").write_text('{"g4": [0, 1, 2, 3, 4], "g5": [5, 6, 7, 8]}')
    more = ["--indices", str(tmp_path / "i.json"), "--json", str(tmp_path / "e.json"), "--permutations", "1"]
    result = run.invoke(app, ["graph", "eval", bundle, "--data", data, *more])
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "e.json").read_text())
    assert [row["configs"] for row in report["graphs"]] == [5, 4]
    assert report["means"]["slowdown_10"]["mean"] == 0
    scores = ["--top", "2", "--out", str(tmp_path / "s.jsonl")]
    result = run.invoke(app, ["graph", "score", bundle, str(tmp_path / "d" / "valid" / "g4.npz"), *scores])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert sorted(line["rank"] for line in lines) == list(range(1, 13))
    assert lines[min(range(12), key=lambda i: lines[i]["score"])]["rank"] == 1
    assert len(result.output.splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--collection", "xla"], "'xla' is none of"),
        (["--reading", "book"], "'book' is none of"),
        (["--set", "network.depth=3"], "is no option"),
        (["--device", "tpu"], "neither cpu nor cuda"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: list[str], message: str) -> None:
    arguments = ["graph", "train", "--data", "d", "--out", str(tmp_path / "b"), *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split()).replace("│ ", "")


def test_an_output_that_is_something_else_or_in_use_is_refused(tmp_path: Path) -> None:
    write_graph(tmp_path / "d" / "train" / "a.npz", generate_layout(seed=0, nodes=4, configs=12))
    data = str(tmp_path / "d")
    result = CliRunner().invoke(app, ["graph", "train", "--data", data, "--out", data])
    assert result.exit_code == 2 and "no graph bundle" in result.output
    out = tmp_path / "b"
    with locked(tmp_path / "b.training" / "lock", whose=out, option="--out"):
        result = CliRunner().invoke(app, ["graph", "train", "--data", data, "--out", str(out)])
    assert isinstance(result.exception, BundleError)
    assert "another run is writing" in str(result.exception)


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


def test_importing_the_package_and_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys, wmsched.graph, wmsched.graph.command, wmsched.graph.config\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pandas', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "assert set(wmsched.graph.__all__) == set(wmsched.graph._HOMES)\n"
        "for name in wmsched.graph.__all__: getattr(wmsched.graph, name)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
