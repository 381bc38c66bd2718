"""Bundles and task scorers on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from wmsched.base.errors import BundleError, UnknownName
from wmsched.features.hardware import hardware_features
from wmsched.learn.evaluate.metrics import pairwise_accuracy
from wmsched.model.bundles import resolve_output
from wmsched.model.config import EncoderConfig
from wmsched.model.encoder import StateEncoder
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.rows import RowBuilder
from wmsched.model.tokenizer import train_tokenizer
from wmsched.model.transition import TransitionConfig, TransitionModel
from wmsched.model.world_model import WorldModel
from wmsched.schedules.types import Iter, Stage, Workload

S0 = "for i in range(64):\n    B[i] = A[i] * T.float32(2)\n"
WORKLOAD = Workload(
    key="toy",
    target="llvm -mcpu=znver4 -num-cores=2",
    stages=(
        Stage("A", "placeholder", shape=(64,)),
        Stage("B", "compute", (Iter("i", 64, "S"),), (), (("Mul", 1),), (64,)),
    ),
)
CANDIDATES = [
    [["SP", 1, 0, 64, [inner], 1], ["PR", 1, 0, f"auto_unroll_max_step${unroll}"], ["AN", 1, 1, mark]]
    for inner in (1, 2, 4, 8, 16, 32)
    for unroll in (0, 16, 64)
    for mark in (1, 2)
]
SECONDS = np.array([1e-3 / (1 + steps[0][4][0] * steps[2][3]) for steps in CANDIDATES])


@pytest.fixture(scope="module")
def parts() -> dict:
    config = EncoderConfig(
        hidden=16, layers=1, heads=2, feedforward=16, vocab_size=300, max_length=64, stride=8, dim=8
    )
    encoder = StateEncoder(config, train_tokenizer([S0], vocab_size=300)).eval()
    transition = TransitionModel(TransitionConfig(features=16, dim=8, action=8, hidden=16)).eval()
    return {"encoder": encoder, "transition": transition}


def make(parts: dict, *, state: str = "predicted", online: bool = False) -> WorldModel:
    builder = RowBuilder(**parts, state=state)
    z0, hardware = builder.initial(S0), hardware_features(WORKLOAD)
    groups = [RankGroup("toy", builder.rows(WORKLOAD, z0, hardware, CANDIDATES), SECONDS)]
    ranker = Ranker.fit(groups, RankerConfig(rounds=20, depth=3, threads=1, n_models=2))
    about = {"fingerprint": {"workloads": ["ab"]}, "metrics": {"top1": 0.5}}
    return WorldModel(ranker, **parts, state=state, about=about, online=online)


@pytest.fixture(scope="module")
def model(parts: dict) -> WorldModel:
    return make(parts)


@pytest.mark.parametrize("state", ["predicted", "initial", "none"])
def test_a_saved_bundle_scores_the_same(parts: dict, tmp_path: Path, state: str) -> None:
    model = make(parts, state=state)
    model.save_pretrained(tmp_path / "b", card="# card")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]  # nothing half-written is left
    again = WorldModel.from_pretrained(tmp_path / "b")
    assert again.about == model.about and (tmp_path / "b" / "MODEL_CARD.md").read_text() == "# card"
    assert (tmp_path / "b" / "encoder").is_dir() == (state != "none")
    first, second = (m.task(WORKLOAD, S0).score(CANDIDATES) for m in (model, again))
    np.testing.assert_array_equal(first, second)
    again.save_pretrained(tmp_path / "b")  # over an older one
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_scores_are_finite_in_range_ordered_and_stay(model: WorldModel) -> None:
    scorer = model.task(WORKLOAD, S0)
    scores, margins = scorer.score(CANDIDATES), scorer.margins(CANDIDATES)
    assert scores.dtype == np.float32 and scores.shape == (len(CANDIDATES),)
    assert ((scores > 0) & (scores <= 1)).all()
    assert pairwise_accuracy(scores, SECONDS) > 0.8
    order = np.argsort(margins, kind="stable")
    assert (np.diff(scores[order])[np.diff(margins[order]) > 1e-6] > 0).all()
    # in another batch: a matrix product of another size may round otherwise in its last digit, which on some
    # processors moves a predicted state across a tree's threshold
    np.testing.assert_allclose(scorer.score(CANDIDATES[:5]), scores[:5], atol=0.1 * np.ptp(scores))
    assert scorer.score([]).shape == (0,)


@pytest.mark.parametrize("state", ["initial", "none"])
def test_without_a_rollout_a_score_is_the_same_in_any_batch(parts: dict, state: str) -> None:
    scorer = make(parts, state=state).task(WORKLOAD, S0)
    scores = scorer.score(CANDIDATES)
    np.testing.assert_array_equal(scorer.score(CANDIDATES[:5]), scores[:5])


def test_the_rollout_is_that_of_the_transition(parts: dict) -> None:
    import torch

    from wmsched.features.step_features import features

    builder = RowBuilder(**parts)
    steps = CANDIDATES[5]
    z = builder.rows(WORKLOAD, builder.initial(S0), hardware_features(WORKLOAD), [steps])[0, :8]
    (texts,) = features([steps], WORKLOAD)[1]
    encoder, transition = parts["encoder"], parts["transition"]
    with torch.no_grad():
        actions = transition.project(torch.from_numpy(encoder.encode_actions(texts)))[None]
        mask = torch.ones(1, len(texts), dtype=torch.bool)
        expected = transition.rollout(torch.from_numpy(encoder.encode([S0])), actions, mask)[0, -1]
    np.testing.assert_allclose(z, expected.numpy(), atol=1e-5)
    unknown = builder.rows(WORKLOAD, builder.initial(""), hardware_features(WORKLOAD), [steps])
    assert not unknown[0, :8].any()  # no initial program: no state


def test_actions_are_encoded_once(parts: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = make(parts), []
    encode = StateEncoder.encode_actions
    monkeypatch.setattr(
        StateEncoder, "encode_actions", lambda self, texts: asked.extend(texts) or encode(self, texts)
    )
    for _ in range(2):
        model.task(WORKLOAD, S0).margins(CANDIDATES)
    assert asked and len(asked) == len(set(asked))


def test_only_an_online_model_learns(parts: dict) -> None:
    frozen, learning = (make(parts, online=online).task(WORKLOAD, S0) for online in (False, True))
    before = frozen.margins(CANDIDATES)
    np.testing.assert_array_equal(learning.margins(CANDIDATES), before)
    for scorer in (frozen, learning):
        scorer.observe(CANDIDATES, 1 / SECONDS)  # the opposite of what was trained
        scorer.observe([], np.zeros(0))
    np.testing.assert_array_equal(frozen.margins(CANDIDATES), before)
    after = learning.margins(CANDIDATES)
    assert pairwise_accuracy(after, 1 / SECONDS) > pairwise_accuracy(before, 1 / SECONDS) + 0.2
    assert np.isfinite(learning.score(CANDIDATES)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 99}, "bundle format 99.*wmsched train"),
        ({"features": ["z.0", "nonsense"]}, "other features.*nonsense.*wmsched train"),
        ({"phi_version": -1}, "other features"),
    ],
)
def test_what_does_not_fit_is_refused(model: WorldModel, tmp_path: Path, change: dict, message: str) -> None:
    model.save_pretrained(tmp_path / "b")
    path = tmp_path / "b" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BundleError, match=message):
        WorldModel.from_pretrained(tmp_path / "b")


def test_a_bundle_without_the_file_of_its_ranker_is_refused(model: WorldModel, tmp_path: Path) -> None:
    """What is left of one with the latent ranker would load as its trees."""
    model.save_pretrained(tmp_path / "b")
    path = tmp_path / "b" / "config.json"
    config = json.loads(path.read_text())
    assert config["ranker"] == "trees"
    path.write_text(json.dumps(config | {"ranker": "latent"}))
    with pytest.raises(BundleError, match=r"'latent', and latent\.safetensors is missing: copy the whole"):
        WorldModel.from_pretrained(tmp_path / "b")
    config.pop("ranker")  # an older one
    path.write_text(json.dumps(config))
    assert WorldModel.from_pretrained(tmp_path / "b").about == model.about


def test_missing_and_foreign_folders(model: WorldModel, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no-such-bundle"):
        WorldModel.from_pretrained("no-such-bundle")
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(BundleError, match="is no bundle"):
        model.save_pretrained(tmp_path)
    with pytest.raises(BundleError, match=r"config\.json"):
        WorldModel.from_pretrained(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "x"


def test_parts_of_different_models_are_refused(model: WorldModel, parts: dict) -> None:
    with pytest.raises(BundleError, match="different models"):
        WorldModel(model.ranker, **parts, state="none")


def test_a_link_stays_and_what_it_leads_to_is_replaced(model: WorldModel, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("real")
    for _ in range(2):  # first it leads nowhere
        model.save_pretrained(link)
        assert link.is_symlink() and (tmp_path / "real" / "config.json").is_file()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
    assert WorldModel.from_pretrained(link).columns == model.columns


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("file", "is a file"),
        ("file/b", "cannot be written"),
        ("loop", "cannot be written"),
        ("mine", "is there and is no bundle"),
    ],
)
def test_where_no_bundle_can_go_is_told(out: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(BundleError, match=f"{out} {says}"):
        resolve_output(tmp_path / out)


def test_the_working_directory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert resolve_output(".") == resolve_output(Path()) == tmp_path.resolve() / "here"
    assert resolve_output("../new/b") == tmp_path.resolve() / "new" / "b"
