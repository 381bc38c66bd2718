"""The transition: the TransH step by hand, rollouts, saving, training."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_dataset import ToyDataset

from wmsched.base.errors import BundleError, DatasetError
from wmsched.learn.training.rollouts import Groups, Negatives, Rollouts, build_tables
from wmsched.learn.training.train_encoder import EncoderTraining, train_encoder
from wmsched.learn.training.train_transition import TransitionTraining, train_transition
from wmsched.model.config import EncoderConfig
from wmsched.model.encoder import StateEncoder
from wmsched.model.transition import TransitionConfig, TransitionModel

CONFIG = TransitionConfig(features=6, dim=5, action=4, hidden=7)
SHORT = TransitionTraining(
    steps=7, epoch_steps=3, checkpoint_steps=2, batch=8, full_batch=4, window=2, valid_fraction=0.3
)


@pytest.fixture
def model() -> TransitionModel:
    torch.manual_seed(0)
    model = TransitionModel(CONFIG)
    for parameter in model.parameters():  # also those that start at zero
        torch.nn.init.normal_(parameter, std=0.5)
    model.fit_features(np.random.default_rng(0).normal(2, 3, (20, 6)).astype(np.float32))
    return model.eval()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> StateEncoder:
    config = EncoderConfig(
        hidden=16, layers=1, heads=2, feedforward=32, vocab_size=512, max_length=96, stride=8, dim=8
    )
    training = EncoderTraining(
        steps=10, workloads_per_batch=4, states_per_workload=4, learning_rate=5e-3, warmup=2
    )
    return train_encoder(
        ToyDataset(), config=config, training=training, out=tmp_path_factory.mktemp("encoder")
    )


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    x = rng.normal(size=shape).astype(np.float32)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def oracle(model: TransitionModel, z: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Eq 8 in numpy for one state and one action, the MLP's first layer on [p, a] as one matrix."""
    p = {name: value.detach().numpy().astype(np.float64) for name, value in model.state_dict().items()}
    a = p["projection.weight"] @ ((features - p["mean"]) / p["scale"]) + p["projection.bias"]
    w = p["normal.weight"] @ a
    w = w / math.sqrt(sum(x * x for x in w))
    d = p["translation.weight"] @ a + p["translation.bias"]
    moved = z - (w @ z) * w + d
    first = np.concatenate([p["state_in.weight"], p["action_in.weight"]], axis=1)
    pre = first @ np.concatenate([moved, a]) + p["action_in.bias"]
    hidden = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in pre])
    out = moved + p["out.weight"] @ hidden + p["out.bias"]
    return out / np.linalg.norm(out)


def test_step_is_the_formula(model: TransitionModel) -> None:
    rng = np.random.default_rng(1)
    z, features = unit(rng, 4, 5), rng.normal(size=(4, 6)).astype(np.float32)
    with torch.no_grad():
        got = model.step(torch.from_numpy(z), model.project(torch.from_numpy(features))).numpy()
    expected = [oracle(model, z[i].astype(np.float64), features[i]) for i in range(4)]
    np.testing.assert_allclose(got, expected, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-6)


def test_the_projection_is_orthogonal_to_the_normal() -> None:
    """Without translation and MLP the new state lies in the action's hyperplane."""
    torch.manual_seed(0)
    model = TransitionModel(CONFIG)
    torch.nn.init.zeros_(model.translation.weight)
    rng = np.random.default_rng(2)
    a = torch.from_numpy(rng.normal(size=(3, 4)).astype(np.float32))
    with torch.no_grad():
        z = model.step(torch.from_numpy(unit(rng, 3, 5)), a)
        w = model.normal(a)
    np.testing.assert_allclose((z * w).sum(-1), 0, atol=1e-6)


def test_rollout_feeds_predictions_forward_and_stops_at_the_mask(model: TransitionModel) -> None:
    rng = np.random.default_rng(3)
    z0 = torch.from_numpy(unit(rng, 3, 5))
    a = torch.from_numpy(rng.normal(size=(3, 4, 4)).astype(np.float32))
    lengths = [4, 2, 0]
    mask = torch.tensor([[k < n for k in range(4)] for n in lengths])
    with torch.no_grad():
        got = model.rollout(z0, a, mask)
        for b, n in enumerate(lengths):
            z = z0[b : b + 1]
            for k in range(4):
                z = model.step(z, a[b : b + 1, k]) if k < n else z
                np.testing.assert_allclose(got[b, k], z[0], atol=1e-6)
        changed = a.clone()
        changed[~mask] = 99.0  # padding has no say
        np.testing.assert_array_equal(model.rollout(z0, changed, mask), got)
        assert model.rollout(z0, a[:, :0], mask[:, :0]).shape == (3, 0, 5)


def naive(model: TransitionModel, z0: np.ndarray, table: np.ndarray, sequence: list[int]) -> np.ndarray:
    z = torch.from_numpy(z0)[None]
    with torch.no_grad():
        for action in sequence:
            z = model.step(z, torch.from_numpy(table[action])[None])
    return z[0].numpy()


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=12))
def test_shared_prefix_rollout_equals_the_naive_one(sequences: list[list[int]]) -> None:
    torch.manual_seed(0)
    model = TransitionModel(CONFIG)
    torch.nn.init.normal_(model.out.weight, std=0.5)
    rng = np.random.default_rng(4)
    z0, table = unit(rng, 5), rng.normal(size=(3, 4)).astype(np.float32)
    got = model.terminal(z0, table, [np.array(s, np.int64) for s in sequences])
    assert got.shape == (len(sequences), 5) and got.dtype == np.float32
    for row, sequence in zip(got, sequences):
        np.testing.assert_allclose(row, naive(model, z0, table, sequence), atol=1e-5)


def test_each_distinct_prefix_is_computed_once(model: TransitionModel, monkeypatch) -> None:
    rows = []
    apply = model.apply_operators

    def counting(z, op):
        rows.append(len(z))
        return apply(z, op)

    monkeypatch.setattr(model, "apply_operators", counting)
    rng = np.random.default_rng(5)
    table = rng.normal(size=(9, 4)).astype(np.float32)
    sequences = [[0, 1, i % 3, i % 2] for i in range(60)] + [[0], [0, 1], []]
    model.terminal(unit(rng, 5), table, [np.array(s, np.int64) for s in sequences])
    assert rows == [1, 1, 3, 6]


def test_an_action_outside_the_table_is_refused(model: TransitionModel) -> None:
    with pytest.raises(IndexError, match=r"0\.\.3 outside the table of 3"):
        model.terminal(np.ones(5, np.float32), np.ones((3, 4), np.float32), [np.array([0, 3])])
    with pytest.raises(IndexError, match="-1"):
        model.terminal(np.ones(5, np.float32), np.ones((3, 4), np.float32), [np.array([-1])])


def test_save_load_gives_the_same_numbers(model: TransitionModel, tmp_path) -> None:
    path = tmp_path / "sub" / "transition.safetensors"
    model.save(path)
    loaded = TransitionModel.load(path)
    assert loaded.config == CONFIG
    rng = np.random.default_rng(6)
    z, features = (
        torch.from_numpy(unit(rng, 3, 5)),
        torch.from_numpy(rng.normal(size=(3, 6)).astype(np.float32)),
    )
    with torch.no_grad():
        torch.testing.assert_close(
            loaded.step(z, loaded.project(features)), model.step(z, model.project(features)), rtol=0, atol=0
        )


def test_missing_damaged_and_foreign_files_are_refused(model: TransitionModel, tmp_path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(BundleError, match=r"none\.safetensors"):
        TransitionModel.load(tmp_path / "none.safetensors")
    path = tmp_path / "t.safetensors"
    model.save(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(BundleError, match="no usable transition"):
        TransitionModel.load(path)
    save_file(model.state_dict(), path)
    with pytest.raises(BundleError, match="wmsched"):
        TransitionModel.load(path)
    for header, message in (
        ({"format_version": 7, "transition": {}}, "format 7"),
        ({"format_version": 1, "transition": {"colour": 1}}, "colour"),
        ({"format_version": 1, "transition": dataclasses.asdict(CONFIG) | {"dim": 6}}, "size mismatch"),
    ):
        save_file(model.state_dict(), path, metadata={"wmsched": json.dumps(header)})
        with pytest.raises(BundleError, match=message):
            TransitionModel.load(path)


def test_windows_mask_the_end_and_unknown_states() -> None:
    rollouts = Rollouts(
        actions=np.array([[3, 4, 5], [6, 0, 0]]),
        states=np.array([[10, 11, -1, 13], [20, 21, -1, -1]]),
        length=np.array([3, 1]),
        workload=np.array([0, 1]),
    )
    actions, states, mask, live = rollouts.windows(np.array([0, 0, 1]), np.array([0, 2, 0]), 3)
    assert actions.tolist() == [[3, 4, 5], [5, 0, 0], [6, 0, 0]]
    assert states[:, 0].tolist() == [10, -1, 20]
    assert live.tolist() == [[True, True, True], [True, False, False], [True, False, False]]
    assert mask.tolist() == [[True, False, True], [True, False, False], [True, False, False]]
    assert states[:, 1:][mask].tolist() == [11, 13, 13, 21]


def test_groups_draw_only_their_own_values() -> None:
    groups = Groups.build(np.array([0, 2, 2, 2, 0]), np.array([5, 7, 8, 8, -1]), 4)
    drawn = groups.draw(np.random.default_rng(0), np.array([[0, 2], [3, 1]]), 50)
    assert drawn.shape == (2, 2, 50)
    assert set(drawn[0, 0]) == {5} and set(drawn[0, 1]) == {7, 8} and set(drawn[1].ravel()) == {-1}


def test_negatives_come_from_the_three_sources() -> None:
    rollouts = Rollouts(
        actions=np.zeros((3, 2), np.int64),
        states=np.array([[0, 1, 2], [0, 3, 4], [5, 6, 7]]),
        length=np.array([2, 2, 2]),
        workload=np.array([0, 0, 1]),
    )
    negatives = Negatives(rollouts, cross=40, same=40, siblings=40)
    drawn = negatives.draw(np.random.default_rng(0), np.array([0, 1]), np.array([[1, 2], [1, 2]]))
    assert drawn.shape == (2, 2, 120)
    assert set(drawn[0, 0, :40]) == set(range(8))
    assert set(drawn[0, 0, 40:80]) == {0, 1, 2, 3, 4} and set(drawn[1, 0, 40:80]) == {5, 6, 7}
    assert (
        set(drawn[0, 0, 80:]) == {1, 3} and set(drawn[0, 1, 80:]) == {2, 4} and set(drawn[1, 1, 80:]) == {7}
    )


def test_tables_hold_what_the_encoder_says(encoder: StateEncoder, tmp_path) -> None:
    data = ToyDataset()
    tables = build_tables(data, encoder, fraction=0.3, seed=0, longest=64, cache=tmp_path)
    assert len(tables.train.length) + len(tables.valid.length) == 36 and len(tables.valid.length) == 12
    assert not set(tables.train.workload) & set(tables.valid.workload)
    cut = build_tables(data, encoder, fraction=0.3, seed=0, longest=2, cache=tmp_path)
    assert cut.train.actions.shape[1] == 2 and cut.train.states.shape[1] == 3
    from wmsched.learn.data.splits import split_workloads

    workload_id = split_workloads(data.workloads(), fraction=0.3)[0][0]
    trajectory = data.trajectories(workload_id)[0]
    expected = encoder.encode([data.states(workload_id)[key] for key in trajectory.states])
    np.testing.assert_allclose(tables.states[tables.train.states[0]], expected, atol=1e-5)
    expected = encoder.encode_actions(trajectory.action_texts)
    np.testing.assert_allclose(tables.features[tables.train.actions[0]], expected, atol=1e-5)


def test_a_dataset_without_states_is_refused(encoder: StateEncoder) -> None:
    data = ToyDataset()
    bare = {
        w.id: [dataclasses.replace(x, states=()) for x in data.trajectories(w.id)] for w in data.workloads()
    }
    data._trajectories = bare
    with pytest.raises(DatasetError, match=r"toy.*replayed states"):
        build_tables(data, encoder, fraction=0.3, seed=0, longest=64, cache=None)


def test_training_beats_standing_still_on_unseen_workloads(encoder: StateEncoder, tmp_path) -> None:
    training = dataclasses.replace(
        SHORT, steps=300, epoch_steps=100, learning_rate=3e-3, warmup=10, batch=32, full_batch=32
    )
    rows: list[dict] = []
    model = train_transition(
        ToyDataset(),
        encoder,
        training=training,
        out=tmp_path / "f.safetensors",
        log=rows.append,
        cache=tmp_path,
    )
    assert [row["step"] for row in rows] == [100, 200, 300]
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert rows[-1]["terminal_cosine"] > rows[-1]["terminal_still"]
    lines = (tmp_path / "f.metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [100, 200, 300]
    loaded = TransitionModel.load(tmp_path / "f.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), model.state_dict().values()))


def test_a_killed_run_resumes_to_the_same_weights(encoder: StateEncoder, tmp_path) -> None:
    class Killed(Exception):
        pass

    def kill_at(number: int):
        def on_step(step: int) -> None:
            if step == number:
                raise Killed

        return on_step

    data = ToyDataset()
    whole = train_transition(data, encoder, training=SHORT, out=tmp_path / "whole.safetensors")
    cut_path = tmp_path / "cut.safetensors"
    for at in (3, 5):
        with pytest.raises(Killed):
            train_transition(data, encoder, training=SHORT, out=cut_path, on_step=kill_at(at))
        assert not cut_path.exists()
    cut = train_transition(data, encoder, training=SHORT, out=cut_path)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(cut.state_dict()[name], value, rtol=0, atol=0, msg=name)
    with pytest.raises(BundleError, match=r"other settings: training .*choose another output"):
        train_transition(data, encoder, training=dataclasses.replace(SHORT, weight=0.1), out=cut_path)
    checkpoint = tmp_path / "cut.checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:30])
    with pytest.raises(BundleError, match="delete it"):
        train_transition(data, encoder, training=SHORT, out=cut_path)


def test_a_checkpoint_of_an_encoder_that_has_trained_on_is_begun_anew(monkeypatch) -> None:
    """As where `--minutes` is more than it was; other settings are refused, for they are another run's."""
    from wmsched.learn.training import train_transition as module

    held = {"training": {"steps": 4}, "encoder": "before"}
    monkeypatch.setattr(module, "read_settings", lambda path: held)
    assert module._of_another_encoder(Path("c"), held | {"encoder": "after"})
    assert not module._of_another_encoder(Path("c"), held)
    assert not module._of_another_encoder(Path("c"), held | {"encoder": "after", "training": {"steps": 8}})
    monkeypatch.setattr(module, "read_settings", lambda path: None)
    assert not module._of_another_encoder(Path("c"), held)
