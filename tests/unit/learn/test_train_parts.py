"""G fitted again on the E and F of a bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from toy_stored import write_toy
from typer.testing import CliRunner

from benchmarks import leak
from wmsched.base.errors import BundleError
from wmsched.cli.main import app
from wmsched.learn.training.train import TrainOptions, train
from wmsched.learn.training.train_encoder import EncoderTraining
from wmsched.learn.training.train_transition import TransitionTraining
from wmsched.model.config import EncoderConfig
from wmsched.model.ranker import RankerConfig

ENCODER = EncoderConfig(vocab_size=400, hidden=16, layers=1, heads=2, feedforward=16, dim=8)
TREES = RankerConfig(rounds=8, objective="rank:ndcg")


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> TrainOptions:
    """Of a bundle with all parts, which is there."""
    root = tmp_path_factory.mktemp("parts")
    found = TrainOptions(
        dataset=write_toy(root / "data"),
        out=root / "whole",
        encoder=ENCODER,
        encoder_training=EncoderTraining(steps=4, epoch_steps=2, checkpoint_steps=2, workloads_per_batch=3),
        transition_training=TransitionTraining(steps=4, epoch_steps=2, checkpoint_steps=2),
        ranker=TREES,
        folds=3,
    )
    train(found)
    return found


def refit(options: TrainOptions, name: str, **changed) -> tuple[Path, list[str]]:
    """Without the settings of E and F: who takes them as they are does not know them."""
    told: list[str] = []
    out = options.out.with_name(name)
    given = TrainOptions(dataset=options.dataset, out=out, ranker=TREES, folds=3, parts_of=str(options.out))
    train(replace(given, **changed), log=lambda part, _: told.append(part))
    return out, told


def test_the_same_g_from_the_parts_as_from_their_training(options) -> None:
    out, told = refit(options, "again")
    assert set(told) == {"G"}
    for name in ("ranker.ubj", "transition.safetensors"):
        assert (out / name).read_bytes() == (options.out / name).read_bytes()
    ours, whole = (json.loads((folder / "config.json").read_text()) for folder in (out, options.out))
    assert ours["settings"] == whole["settings"]  # the parts' own, not this training's defaults
    assert ours["parts_fingerprint"] == whole["fingerprint"] and "parts_fingerprint" not in whole
    assert leak.read_fingerprint(out)["workloads"] == whole["fingerprint"]["workloads"]


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"state": "initial"}, {"encoder"}),
        ({"state": "none"}, set()),
        ({"phi": False}, {"encoder", "transition"}),
    ],
    ids=["initial", "none", "no-phi"],
)
def test_without_a_part_of_the_input(options, changed, parts) -> None:
    out, told = refit(options, "-".join(map(str, *changed.items())), **changed)
    assert set(told) == {"G"}
    there = {path.name.partition(".")[0] for path in out.iterdir()}
    assert there & {"encoder", "transition"} == parts


def test_a_bundle_without_the_parts_is_refused(options) -> None:
    bare, _ = refit(options, "bare", state="none")
    with pytest.raises(BundleError, match=r"its state is 'none'.*name a bundle with a predicted state"):
        train(replace(options, out=options.out.with_name("other"), parts_of=str(bare)))
    assert not options.out.with_name("other").exists()


def test_on_the_command_line(options) -> None:
    out = options.out.with_name("cli")
    command = ["train", "--data", options.dataset, "--out", out, "--parts-of", options.out]
    done = CliRunner().invoke(app, [*map(str, command), "--objective", "reg:squarederror"])
    assert done.exit_code == 0, done.output
    settings = json.loads((out / "config.json").read_text())["settings"]
    assert settings["ranker"]["objective"] == "reg:squarederror"
    assert settings["encoder"]["dim"] == ENCODER.dim
    bad = CliRunner().invoke(app, [*map(str, command), "--objective", "rank:best"])
    assert bad.exit_code == 2
    assert "rank:best" in bad.output
