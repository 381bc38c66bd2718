"""What `wmsched train` refuses before it trains: an output that cannot be, a dataset that is another now."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_dataset import _change
from toy_stored import write_toy

from data_builder.manifest import write_manifest
from wmsched.dataset import Dataset, states_path
from wmsched.encoder_config import EncoderConfig
from wmsched.errors import BundleError
from wmsched.ranker import RankerConfig
from wmsched.train import TrainOptions, train
from wmsched.training.checkpoint import data_digest
from wmsched.training.encoder import EncoderTraining, train_encoder

ENCODER = EncoderConfig(vocab_size=400, hidden=16, layers=1, heads=2, feedforward=16, dim=8)
SHORT = EncoderTraining(steps=2, epoch_steps=1, checkpoint_steps=1, workloads_per_batch=3)


def test_a_checkpoint_is_of_the_states_that_it_has_seen(tmp_path: Path) -> None:
    root = write_toy(tmp_path / "data")
    first = Dataset(root)
    train_encoder(first, config=ENCODER, training=SHORT, out=tmp_path / "encoder")
    assert data_digest(Dataset(root)) == data_digest(first)
    _change(states_path(root, first.workload_ids[0]), lambda rows: rows[:-1])  # of the same logs
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
    monkeypatch.setattr("wmsched.train.build_groups", lambda *_, **__: pytest.fail("it trains"))
    for out in ("mine", "file"):
        with pytest.raises(BundleError, match="name another folder"):
            train(TrainOptions(dataset=data, out=tmp_path / out, state="none"))
    assert {path.name for path in tmp_path.iterdir()} == {"data", "mine", "file"}


def test_the_working_directory_may_be_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_toy(tmp_path / "data")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    ranker = RankerConfig(rounds=4, threads=1)
    train(TrainOptions(dataset=data, out=Path(), state="none", ranker=ranker, folds=3))
    monkeypatch.chdir(tmp_path)  # the folder that it was is gone
    assert (tmp_path / "b" / "ranker.ubj").is_file()
    assert (tmp_path / "b" / "MODEL_CARD.md").read_text().startswith("# b\n")
