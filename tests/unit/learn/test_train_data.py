"""What `wmsched train` refuses before it trains: an output that cannot be, a dataset that is another now."""

from __future__ import annotations

from pathlib import Path

import pytest
from dataset_files import change_rows
from toy_stored import write_toy
from typer.testing import CliRunner

from data_builder.build.manifest import write_manifest
from wmsched.base.errors import BundleError, DatasetError
from wmsched.base.files import PARTIAL_SUFFIX
from wmsched.cli.main import app
from wmsched.learn.data.dataset import Dataset, states_path
from wmsched.learn.training.checkpoint import data_digest
from wmsched.learn.training.train import TrainOptions, train
from wmsched.learn.training.train_encoder import PRETRAINED_RATE, EncoderTraining, train_encoder
from wmsched.model.config import EncoderConfig
from wmsched.model.ranker import RankerConfig

ENCODER = EncoderConfig(vocab_size=400, hidden=16, layers=1, heads=2, feedforward=16, dim=8)
SHORT = EncoderTraining(steps=2, epoch_steps=1, checkpoint_steps=1, workloads_per_batch=3)


def test_a_checkpoint_is_of_the_states_that_it_has_seen(tmp_path: Path) -> None:
    root = write_toy(tmp_path / "data")
    first = Dataset(root)
    train_encoder(first, config=ENCODER, training=SHORT, out=tmp_path / "encoder")
    assert data_digest(Dataset(root)) == data_digest(first)
    change_rows(states_path(root, first.workload_ids[0]), lambda rows: rows[:-1])  # of the same logs
    write_manifest(root, first.manifest)
    again = Dataset(root)
    assert again.fingerprint() == first.fingerprint() and data_digest(again) != data_digest(first)
    with pytest.raises(BundleError, match=r"other settings: data .*delete it to start anew"):
        train_encoder(again, config=ENCODER, training=SHORT, out=tmp_path / "encoder")


def test_an_unusable_out_is_told_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_toy(tmp_path / "data")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    monkeypatch.setattr(
        "wmsched.learn.training.train.build_groups", lambda *_, **__: pytest.fail("it trains")
    )
    for out in ("mine", "file"):
        with pytest.raises(BundleError, match="name another folder"):
            train(TrainOptions(dataset=data, out=tmp_path / out, state="none"))
    assert {path.name for path in tmp_path.iterdir()} == {"data", "mine", "file"}


def test_unknown_options_are_told_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = write_toy(tmp_path / "data"), tmp_path / "bundle"
    monkeypatch.setattr(
        "wmsched.learn.training.train.train_encoder", lambda *_, **__: pytest.fail("it trains")
    )
    for option, value in (("--state", "predict"), ("--ranker", "forest")):
        command = ["train", "--data", str(data), "--out", str(out), option, value]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2 and option in done.output and f"'{value}'" in done.output
    with pytest.raises(ValueError, match="state='predict' is none of predicted, initial, none"):
        TrainOptions(dataset=data, out=out, state="predict")
    with pytest.raises(ValueError, match="kind='forest' is none of trees, attention, latent"):
        TrainOptions(dataset=data, out=out, kind="forest")
    with pytest.raises(DatasetError, match="boosted trees, not for ranker 'latent'"):
        train(TrainOptions(dataset=data, out=out, kind="latent", external=True))
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_a_pretrained_backbone_is_tuned_gently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[TrainOptions] = []
    monkeypatch.setattr("wmsched.learn.training.train.train", lambda options, log: given.append(options))
    command = ["train", "--data", str(tmp_path), "--out", str(tmp_path / "bundle")]
    for more in ([], ["--backbone", "microsoft/codebert-base", "--encoder-steps", "7"]):
        assert CliRunner().invoke(app, [*command, *more]).exit_code == 0
    scratch, tuned = given
    assert scratch.encoder_training == EncoderTraining() and scratch.encoder.backbone is None
    assert tuned.encoder_training == EncoderTraining(steps=7, learning_rate=PRETRAINED_RATE)
    assert tuned.encoder.backbone == "microsoft/codebert-base"


def test_half_a_cache_of_a_run_that_was_killed_is_removed(tmp_path: Path) -> None:
    data, held = write_toy(tmp_path / "data"), tmp_path / "bundle.training" / "embeddings"
    held.mkdir(parents=True)
    for name in (f".some.npz-01234567{PARTIAL_SUFFIX}", "some.npz"):
        (held / name).touch()
    ranker = RankerConfig(rounds=4, threads=1)
    train(TrainOptions(dataset=data, out=tmp_path / "bundle", state="none", ranker=ranker, folds=3))
    assert [path.name for path in held.iterdir()] == ["some.npz"]


def test_the_working_directory_may_be_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_toy(tmp_path / "data")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    ranker = RankerConfig(rounds=4, threads=1)
    train(TrainOptions(dataset=data, out=Path(), state="none", ranker=ranker, folds=3))
    monkeypatch.chdir(tmp_path)  # the folder that it was is gone
    assert (tmp_path / "b" / "ranker.ubj").is_file()
    assert (tmp_path / "b" / "MODEL_CARD.md").read_text().startswith("# b\n")
