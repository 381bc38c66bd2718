"""Bundles and commands: trained, killed, evaluated, scored; what is wrong is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkout import ROOT
from toy_graphs import TINY, graphs, make_tile, tiny
from typer.testing import CliRunner

from wmsched.base.errors import BundleError
from wmsched.base.files import locked
from wmsched.cli.main import app
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
from wmsched.graph.command import app as graph_app
from wmsched.graph.config import READINGS

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


def test_every_option_in_the_docs_is_one() -> None:
    text = (ROOT / "docs" / "explanation" / "graph.md").read_text()
    options = re.findall(r"(?:preparation|network|training|inference)\.\w+=[\w.]+", text)
    assert len(set(options)) > 15
    for option in options:
        settings_for("xla-default").with_options([option])
    # the table has each option in which the code's reading differs
    paper, code = (settings_for("xla-default", reading=reading).to_json() for reading in READINGS)
    differ = [f"{p}.{k}" for p, values in paper.items() for k, v in values.items() if code[p][k] != v]
    named = {option.split("=")[0] for option in options}
    assert set(differ) - named == {"training.trained", "training.kept"}  # in the row of members


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
