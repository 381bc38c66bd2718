"""The listwise network with cross-candidate attention: Eq 6 of TGraph, learning, batches, saving."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from attention_groups import make_groups

from benchmarks.rankers import train_attention as module
from benchmarks.rankers.attention_ranker import (
    AttentionConfig,
    AttentionNetwork,
    AttentionRanker,
    _deviation,
    cross_attention,
)
from benchmarks.rankers.train_attention import AttentionTraining, ranking_loss, train_attention
from wmsched.base.errors import BundleError, DatasetError
from wmsched.learn.evaluate.metrics import pairwise_accuracy
from wmsched.model.groups import RankGroup

SMALL = AttentionConfig(hidden=24, n_models=2, context=16, dropout=0.0)
SHORT = AttentionTraining(steps=80, groups=8, learning_rate=5e-3)


@pytest.fixture(scope="module")
def ranker() -> AttentionRanker:
    return train_attention(make_groups(12), config=SMALL, training=SHORT)


def test_cross_attention_is_the_formula_and_ignores_padding() -> None:
    e = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, True, True, False, True]])
    found = cross_attention(e, mask, torch.tensor(0.7))[0].numpy()
    x = e[0].numpy()[[0, 1, 2, 4]].astype(np.float64)
    weights = np.exp(x / 0.7) / np.exp(x / 0.7).sum(0)
    np.testing.assert_allclose(found[[0, 1, 2, 4]], 4 * x * weights, rtol=1e-5)
    assert not found[3].any()


def test_the_loss_prefers_the_right_order_and_knows_no_padding() -> None:
    target, mask = torch.tensor([[1.0, 0.5, 0.1, 0.9]]), torch.tensor([[True, True, True, False]])
    for pairwise in (0.0, 0.5, 1.0):
        options = {"temperature": 0.2, "pairwise": pairwise}
        good, bad = (
            ranking_loss(torch.tensor([line]), target, mask, **options)
            for line in ([3.0, 1.0, -2.0, 0.0], [-2.0, 1.0, 3.0, 0.0])
        )
        assert good < bad
        other = ranking_loss(torch.tensor([[3.0, 1.0, -2.0, 99.0]]), target, mask, **options)
        assert other.item() == pytest.approx(good.item())
    equal = torch.full((1, 4), 0.5)
    assert ranking_loss(torch.tensor([[1.0, 5.0, 2.0, 0.0]]), equal, mask, temperature=1, pairwise=1) == 0


def test_it_orders_unseen_workloads(ranker: AttentionRanker) -> None:
    for group in make_groups(4, seed=9):
        scores = ranker.margins(group.rows)
        assert scores.dtype == np.float32 and np.isfinite(scores).all()
        assert pairwise_accuracy(scores, group.seconds) > 0.8


def test_batches_of_any_size(ranker: AttentionRanker) -> None:
    rows = make_groups(1, seed=3)[0].rows
    assert ranker.margins(rows[:0]).shape == (0,) and np.isfinite(ranker.margins(rows[:1])).all()
    many = np.concatenate([rows] * 6)  # larger than the context: dealt into parts
    np.testing.assert_array_equal(ranker.margins(many), ranker.margins(many))
    assert np.corrcoef(ranker.margins(many)[:20], ranker.margins(rows))[0, 1] > 0.9
    order = np.random.default_rng(0).permutation(16)  # one part: the order of the candidates means nothing
    np.testing.assert_allclose(ranker.margins(rows[:16])[order], ranker.margins(rows[:16][order]), atol=1e-4)
    with pytest.raises(ValueError, match="trained on 5 columns"):
        ranker.margins(rows[:, :3])


def test_candidates_see_each_other_only_through_cross_attention() -> None:
    torch.manual_seed(0)
    mask = torch.ones(1, 6, dtype=torch.bool)
    for cross in (True, False):
        config = dataclasses.replace(SMALL, width=5, cross=cross)
        block = AttentionNetwork(config).eval().blocks[0]
        e = torch.randn(1, 6, config.hidden, generator=torch.Generator().manual_seed(1))
        other = e.clone()
        other[0, 5] = other[0, 5].flip(0)  # a shift would be normalized away
        moved = (block(other, mask) - block(e, mask))[0, :5].abs().max()
        assert (moved > 1e-5) == cross


def test_saving(ranker: AttentionRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["attention.safetensors"]
    again = AttentionRanker.load(tmp_path)
    assert again.config == ranker.config and again.width == 5
    rows = make_groups(1, seed=3)[0].rows
    np.testing.assert_array_equal(again.margins(rows), ranker.margins(rows))
    (tmp_path / "attention.safetensors").write_bytes(b"nonsense")
    with pytest.raises(BundleError, match="no usable ranker"):
        AttentionRanker.load(tmp_path)
    with pytest.raises(BundleError, match="another wmsched release"):
        AttentionConfig.from_json({"depth": 3})


def test_nothing_to_learn_is_refused() -> None:
    flat = RankGroup("w", np.zeros((3, 2), np.float32), np.ones(3))
    with pytest.raises(DatasetError, match="two measured programs"):
        train_attention([flat], config=SMALL)


def test_a_bundle_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toy_records import ToyRecords, candidates, tiny_model

    from wmsched.learn.training.train_ranker import build_groups
    from wmsched.model.world_model import WorldModel

    monkeypatch.setattr(module, "AttentionTraining", functools.partial(AttentionTraining, steps=100))
    data = ToyRecords(tmp_path / "ds")
    groups = build_groups(data, state="none")
    found, metrics = module.train_attention_ranker(groups, folds=3)
    assert metrics["pairwise"] > 0.8 and metrics["workloads"] == 6
    WorldModel(found, state="none").save_pretrained(tmp_path / "b")
    again = WorldModel.from_pretrained(tmp_path / "b")
    assert isinstance(again.ranker, AttentionRanker)
    item = data.workloads()[0]
    scores = again.task(item, "").score(candidates(64))
    assert ((scores > 0) & (scores <= 1)).all()
    tiny_model(data).save_pretrained(tmp_path / "b")  # trees in its place: the network's file is gone
    assert not isinstance(WorldModel.from_pretrained(tmp_path / "b").ranker, AttentionRanker)


def test_what_cannot_be_evaluated_is_fitted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AttentionTraining", functools.partial(AttentionTraining, steps=3))
    groups = make_groups(6)
    flat = [dataclasses.replace(group, seconds=np.ones(20)) for group in groups]
    told: list[dict] = []
    found, metrics = module.train_attention_ranker([*groups[:2], *flat[2:]], folds=3, log=told.append)
    assert isinstance(found, AttentionRanker) and metrics == {}
    assert "two measured programs" in told[0]["not_evaluated"] and told[1] == {"ranker": {}}
    failed = [dataclasses.replace(group, seconds=np.full(20, np.nan)) for group in groups]
    _, metrics = module.train_attention_ranker([*groups[:2], *failed[2:]], folds=3)  # one network has times
    assert metrics == {}


def test_a_column_that_did_not_vary_says_nothing_later() -> None:
    """As those of the hardware of one target, and of threads: its weights are as they were drawn."""
    rows = np.stack([np.arange(5.0), np.full(5, 3.0), [np.nan, 1.0, np.nan, 1.0, 2.0]], axis=1)
    deviation = _deviation(rows)
    assert np.isinf(deviation[1]) and np.isfinite(deviation[[0, 2]]).all()
    assert ((7.0 - 3.0) / deviation)[1] == 0
