"""``wmsched train`` from a dataset to a bundle that scores a log: the ranker alone, and the three parts."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from benchmarks import leak
from wmsched.base.errors import BundleError, DatasetError
from wmsched.cli.score import score_log, write_scores
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.training.train import TrainOptions, train
from wmsched.model.ranker import RankerConfig
from wmsched.model.world_model import WorldModel

TARGET = "llvm -keys=cpu -mcpu=znver4 -mtriple=x86_64-linux-gnu -num-cores=2"
RANKER = RankerConfig(rounds=40, depth=3, threads=1, min_child_weight=0.0)


def seconds_of(inner: int, outer: int) -> float:
    """A made-up machine that likes an inner tile of 16 best, whatever the workload."""
    return 1e-4 * 2.0 ** abs(np.log2(inner / 16)) * 1.1 ** abs(np.log2(outer / 4))


def line(size: int, inner: int, outer: int) -> str:
    key = json.dumps([f"{size:032x}", [size, size]])
    steps = [["SP", 2, 0, size, [outer, inner], 1], ["AN", 2, 0, 3], ["AN", 2, 2, 2]]
    task = [key, TARGET, [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []]
    cost = seconds_of(inner, outer) * size
    return json.dumps({"i": [task, [[], steps]], "r": [[cost], 0, 0.1, 0], "v": "v0.6"})


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """Six workloads, twenty-four programs each."""
    path = tmp_path_factory.mktemp("logs") / "log.json"
    rows = [
        line(size, 2**inner, 2**outer)
        for size in (256, 384, 512, 640, 768, 1024)
        for inner in range(6)
        for outer in range(4)
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def dataset(log: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("data") / "set"
    command = [
        sys.executable,
        "-m",
        "data_builder.cli.main",
        "build",
        str(log),
        "--out",
        str(out),
        "--jobs",
        "1",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return out


@pytest.fixture(scope="module")
def bundle(dataset: Path, tmp_path_factory) -> Path:
    """The ranker alone: the log's compute DAGs are not known, so there are no states to learn."""
    out = tmp_path_factory.mktemp("bundles") / "mine"
    lines: list[tuple[str, dict]] = []
    train(
        TrainOptions(dataset=dataset, out=out, state="none", ranker=RANKER, folds=3),
        log=lambda part, told: lines.append((part, told)),
    )
    assert {part for part, _ in lines} == {"G"}
    return out


def test_the_bundle_tells_its_data_and_its_quality(bundle: Path, dataset: Path) -> None:
    config = json.loads((bundle / "config.json").read_text())
    assert config["fingerprint"] == Dataset(dataset).fingerprint()
    assert config["metrics"]["workloads"] == 6 and config["metrics"]["pairwise"] > 0.8
    assert config["settings"]["ranker"]["depth"] == 3
    assert leak.read_fingerprint(bundle)["workloads"]  # what the benchmark refuses leaky bundles by
    text = (bundle / "MODEL_CARD.md").read_text()
    assert "144 records of 6 workloads" in text and TARGET in text and "pairwise" in text


def test_it_ranks_a_log(bundle: Path, log: Path, tmp_path: Path) -> None:
    bad: list[str] = []
    spoilt = tmp_path / "log.json"
    spoilt.write_text("not a record\n" + log.read_text())
    tasks = list(score_log(spoilt, WorldModel.from_pretrained(bundle), bad=bad))
    assert len(bad) == 1 and bad[0].startswith(f"{spoilt}:1: not JSON (")
    assert len(tasks) == 6 and not any(task.known for task in tasks)
    assert min(task.quality()["pairwise"] for task in tasks) > 0.8
    with (tmp_path / "scores").open("wb") as file:
        write_scores(tasks, file)
    rows = [orjson.loads(row) for row in (tmp_path / "scores").read_bytes().splitlines()]
    assert sorted(row["line"] for row in rows) == list(range(2, 146))
    first = [row for row in rows if row["task"] == tasks[0].name]
    assert sorted(row["rank"] for row in first) == list(range(1, 25))
    assert max(first, key=lambda row: row["score"])["rank"] == 1


def test_a_bundle_replaces_a_bundle_and_nothing_else(bundle: Path, dataset: Path, tmp_path: Path) -> None:
    options = TrainOptions(dataset=dataset, out=tmp_path / "again", state="none", ranker=RANKER, folds=3)
    train(options)
    before = (tmp_path / "again" / "ranker.ubj").read_bytes()
    train(options)
    assert (tmp_path / "again" / "ranker.ubj").read_bytes() == before  # seeds are fixed
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").touch()
    with pytest.raises(BundleError, match="is no bundle"):
        train(TrainOptions(dataset=dataset, out=tmp_path / "other", state="none", ranker=RANKER, folds=3))
    assert (tmp_path / "other" / "precious.txt").exists()


def test_a_latent_ranker_is_trained_saved_and_scores(
    dataset: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.rankers import train_latent as latent
    from benchmarks.rankers.latent_ranker import LatentRanker

    short = functools.partial(latent.LatentTraining, encoder_steps=30, steps=40)
    monkeypatch.setattr(latent, "LatentTraining", short)
    out = tmp_path / "bundle"
    train(TrainOptions(dataset=dataset, out=out, state="none", kind="latent", ranker=RANKER, folds=3))
    model = WorldModel.from_pretrained(out)
    assert isinstance(model.ranker, LatentRanker)
    found = json.loads((out / "config.json").read_text())["metrics"]
    assert found["workloads"] == 6 and found["pairwise"] > 0.8 and found["trees_pairwise"] > 0.8
    tasks = list(score_log(log, model))
    assert len(tasks) == 6 and min(task.quality()["pairwise"] for task in tasks) > 0.8


def test_without_states_the_encoder_says_what_is_missing(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError):
        train(TrainOptions(dataset=dataset, out=tmp_path / "bundle", ranker=RANKER))


def test_on_the_command_line(dataset: Path, log: Path, tmp_path: Path) -> None:
    def wmsched(*arguments: object) -> str:
        command = [sys.executable, "-m", "wmsched", *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    out = tmp_path / "bundle"
    assert "G: ranker" in wmsched("train", "--data", dataset, "--out", out, "--state", "none", "--seed", 3)
    assert "fingerprint.records" in wmsched("info", out)
    said = wmsched("score", log, "--cost-model", out)
    rows = [row.split() for row in said.splitlines() if row.startswith("* [")]
    assert len(rows) == 6 and all(row[-7:-5] == ["24", "24"] for row in rows)
    assert all(float(row[-3]) > 0.8 for row in rows)  # pairwise: the narrow console dropped no column
    assert "no compute DAG" in said
