"""The latent ranker: E, F and V learn, the shares of trees and networks, saving."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from attention_groups import make_groups

from benchmarks.rankers import train_latent as latent
from benchmarks.rankers.latent_ranker import FILE, LatentConfig, LatentNetwork, LatentRanker, StatementEncoder
from benchmarks.rankers.statements import WIDTH, statement_rows
from benchmarks.rankers.train_latent import LatentTraining, Programs
from wmsched.base.errors import BundleError, DatasetError
from wmsched.learn.evaluate.metrics import pairwise_accuracy
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig

SMALL = LatentConfig(dim=8, encoder=16, hidden=24, dropout=0.0, n_models=2)
SHORT = LatentTraining(encoder_steps=60, steps=80, groups=8, learning_rate=5e-3)
TREES = RankerConfig(rounds=20, depth=3, threads=1, objective="rank:pairwise")


def make_programs(groups: list[RankGroup], *, replayed: float = 1.0) -> Programs:
    """A program of one or two statements for each record; column 3 of its first one tells the speed."""
    rng = np.random.default_rng(5)
    rows, of = [], {}
    for group in groups:
        numbers = np.full(len(group.rows), -1)
        for n in range(int(replayed * len(group.rows))):
            numbers[n] = len(rows)
            program = rng.normal(0, 0.1, (1 + n % 2, WIDTH)).astype(np.float32)
            program[0, 3] = group.rows[n, 0]
            rows.append(program)
        of[group.key] = numbers
    return Programs(rows, of)


@pytest.fixture(scope="module")
def groups() -> list[RankGroup]:
    return make_groups(12)


@pytest.fixture(scope="module")
def ranker(groups) -> LatentRanker:
    trees = Ranker.fit(groups, TREES)
    return latent.train_latent(groups, make_programs(groups), trees, config=SMALL, training=SHORT)


def test_an_encoded_program_depends_on_its_own_statements_alone_whatever_their_order():
    torch.manual_seed(0)
    encoder = StatementEncoder(SMALL, WIDTH).eval()
    rows = torch.randn(5, WIDTH)
    owner = torch.tensor([0, 0, 0, 1, 1])
    z = encoder(rows, owner, 2)
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(encoder(rows[[2, 0, 1]], torch.zeros(3, dtype=torch.long), 1)[0], z[0])
    assert not torch.allclose(encoder(rows[:2], torch.zeros(2, dtype=torch.long), 1)[0], z[0])


def test_states_that_tell_the_speed_are_learnt_from_and_reached(groups):
    config = dataclasses.replace(SMALL, width=groups[0].rows.shape[1])
    programs = make_programs(groups)
    encoder, value = latent.train_states(groups, programs, config, SHORT, 0)
    states = latent.embed(encoder, programs)
    with torch.no_grad():
        scores = value(states * 4)[:, 0].numpy()
    new = [pairwise_accuracy(scores[programs.of[g.key]], g.seconds) for g in groups]
    assert np.mean(new) > 0.75  # a guess: 0.5
    network = latent.train_jump(groups, programs, states, config, SHORT, 0)
    free = latent.train_jump(groups, programs, None, config, SHORT, 0)
    cosines = []
    for one in (network, free):
        with torch.no_grad():
            z = torch.cat([one.terminal(torch.from_numpy(g.rows)) for g in groups])
        cosines.append(float((z * states).sum(-1).mean()))
    assert cosines[0] > 0.8 and cosines[0] > cosines[1] + 0.2


def test_new_workloads_are_ranked_and_the_weight_shares_the_score(ranker):
    new = make_groups(6, seed=9)
    for weight in (0.0, 0.5, 1.0):
        config = dataclasses.replace(ranker.config, weight=weight)
        one = LatentRanker(config, ranker.trees, ranker.networks, ranker.spreads)
        assert np.mean([pairwise_accuracy(one.margins(g.rows), g.seconds) for g in new]) > 0.65
        if weight == 0:
            expected = ranker.trees.margins(new[0].rows) / ranker.spreads[0]
            np.testing.assert_allclose(one.margins(new[0].rows), expected, rtol=1e-5)
        if weight == 1:
            np.testing.assert_allclose(one.margins(new[0].rows), one.values(new[0].rows), rtol=1e-5)
    assert np.isfinite(ranker.margins(np.full((3, ranker.width), np.nan, np.float32))).all()
    assert ranker.margins(np.zeros((0, ranker.width), np.float32)).shape == (0,)


def test_a_score_does_not_depend_on_the_batch(ranker):
    rows = make_groups(1, seed=3)[0].rows
    np.testing.assert_allclose(ranker.margins(rows)[7:9], ranker.margins(rows[7:9]), atol=1e-5)


def test_without_a_replayed_record_it_learns_by_the_times_alone(groups):
    programs = make_programs(groups, replayed=0.0)
    config = dataclasses.replace(SMALL, width=groups[0].rows.shape[1])
    assert latent.train_states(groups, programs, config, SHORT, 0) is None
    network = latent.train_network(groups, programs, config, SHORT, 0)
    with torch.no_grad():
        scores = [network(torch.from_numpy(g.rows))[0].numpy() for g in groups]
    assert np.mean([pairwise_accuracy(s, g.seconds) for s, g in zip(scores, groups)]) > 0.85
    same = [RankGroup("w", np.zeros((3, 5), np.float32), np.ones(3))]
    with pytest.raises(DatasetError, match="different speed"):
        latent.train_network(same, Programs([], {"w": np.full(3, -1)}), config, SHORT, 0)


def test_saved_and_loaded_it_scores_the_same(ranker, tmp_path: Path):
    rows = make_groups(1, seed=3)[0].rows
    ranker.save(tmp_path)
    again = LatentRanker.load(tmp_path)
    np.testing.assert_array_equal(again.margins(rows), ranker.margins(rows))
    (tmp_path / FILE).write_bytes(b"broken")
    with pytest.raises(BundleError, match=r"no usable latent ranker .*train or copy it again"):
        LatentRanker.load(tmp_path)


def test_settings_of_another_release_and_wrong_numbers_are_refused(ranker):
    with pytest.raises(BundleError, match="colour"):
        LatentConfig.from_json({"colour": 1})
    with pytest.raises(ValueError, match="weight"):
        LatentConfig(weight=1.5)
    with pytest.raises(ValueError, match="spreads"):
        LatentRanker(ranker.config, ranker.trees, ranker.networks, [1.0])
    with pytest.raises(ValueError, match="columns"):
        ranker.margins(np.zeros((2, ranker.width + 1), np.float32))


def test_missing_columns_are_told_from_the_mean():
    config = dataclasses.replace(SMALL, width=3)
    torch.manual_seed(0)
    network = LatentNetwork(config).eval()
    network.fit_columns(np.array([[1, 2, np.nan], [3, 2, np.nan]], np.float32))
    np.testing.assert_allclose(network.mean.numpy(), [2, 2, 0])
    with torch.no_grad():
        z = network.terminal(torch.tensor([[2.0, 2.0, 0.0], [2.0, 2.0, float("nan")]]))
    assert not torch.allclose(z[0], z[1])


def test_a_bundle_with_it(tmp_path: Path) -> None:
    from toy_records import ToyRecords, candidates, tiny_model

    from wmsched.learn.training.train_ranker import build_groups
    from wmsched.model.world_model import WorldModel

    data = ToyRecords(tmp_path / "ds")
    groups = build_groups(data, state="none")
    told = []
    found, metrics = latent.train_latent_ranker(
        data, groups, ranker=TREES, config=SMALL, training=SHORT, folds=3, log=told.append
    )
    assert metrics["pairwise"] > 0.8 and metrics["workloads"] == 6
    assert {"trees_top1", "trees_pairwise"} <= set(metrics) and told[-1] == {"ranker": metrics}
    WorldModel(found, state="none").save_pretrained(tmp_path / "b")
    again = WorldModel.from_pretrained(tmp_path / "b")
    assert isinstance(again.ranker, LatentRanker)
    np.testing.assert_array_equal(again.ranker.margins(groups[0].rows), found.margins(groups[0].rows))
    scores = again.task(data.workloads()[0], "").score(candidates(64))
    assert ((scores > 0) & (scores <= 1)).all()
    tiny_model(data).save_pretrained(tmp_path / "b")  # trees in its place: the networks' file is gone
    assert not isinstance(WorldModel.from_pretrained(tmp_path / "b").ranker, LatentRanker)


def test_what_cannot_be_evaluated_is_fitted_all_the_same(tmp_path: Path) -> None:
    from toy_records import ToyRecords

    from wmsched.learn.training.train_ranker import build_groups

    data = ToyRecords(tmp_path / "ds")
    groups = [
        group if group.network == "net0" else dataclasses.replace(group, seconds=np.ones(len(group.seconds)))
        for group in build_groups(data, state="none")
    ]
    told: list[dict] = []
    found, metrics = latent.train_latent_ranker(
        data,
        groups,
        ranker=TREES,
        config=SMALL,
        training=dataclasses.replace(SHORT, encoder_steps=2, steps=2),
        folds=3,
        log=told.append,
    )
    assert isinstance(found, LatentRanker) and metrics == {}
    assert "two measured programs" in told[0]["not_evaluated"] and told[-1] == {"ranker": {}}


def test_programs_are_read_once_each_and_stay_with_their_records(tmp_path: Path) -> None:
    from toy_records import ToyRecords

    data = ToyRecords(tmp_path / "ds")
    keys = [workload.id for workload in data.workloads()]
    programs = Programs.read(data, keys)
    for key in keys:
        found, texts = data.trajectories(key), data.states(key)
        assert len(programs.of[key]) == len(found)
        for number, trajectory in zip(programs.of[key], found):
            assert (number >= 0) == bool(trajectory.states)
            if trajectory.states:
                expected = statement_rows(texts[trajectory.states[-1]])
                np.testing.assert_array_equal(programs.rows[number], expected)
    ends = [{t.states[-1] for t in data.trajectories(key) if t.states} for key in keys]
    assert len(programs.rows) == sum(map(len, ends))


def test_a_column_that_did_not_vary_says_nothing_later() -> None:
    network = LatentNetwork(LatentConfig(width=3))
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    rows[:, 1] = 2.0
    network.fit_columns(rows)
    other = rows.copy()
    other[:, 1] = 9.0
    network.eval()
    with torch.no_grad():
        np.testing.assert_array_equal(*(network.terminal(torch.from_numpy(each)) for each in (rows, other)))
