"""Eqs 6, 9, 10 and 11 against the formulas written out by hand, one number at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from wmsched.model.losses import (
    match_loss,
    rank_loss,
    representation_loss,
    transition_loss,
    weighted_logits,
)


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    x = rng.normal(size=shape).astype(np.float32)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def t(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(x))


@pytest.mark.parametrize("reading", ["multiply", "log"])
def test_representation_loss_is_cross_entropy_of_the_weighted_logits(reading: str) -> None:
    rng = np.random.default_rng(1)
    positive = rng.uniform(-1, 1, 4).astype(np.float32)
    negatives = rng.uniform(-1, 1, (4, 5)).astype(np.float32)
    intra = rng.random((4, 5)) < 0.5
    valid = rng.random((4, 5)) < 0.8
    expected = []
    for i in range(4):
        u = [positive[i] / 0.3]
        for j in range(5):
            if not valid[i, j]:
                continue
            w = 2.5 if intra[i, j] else 0.5
            u.append(
                w * negatives[i, j] / 0.3 if reading == "multiply" else negatives[i, j] / 0.3 + math.log(w)
            )
        expected.append(-math.log(math.exp(u[0]) / sum(math.exp(x) for x in u)))
    loss = representation_loss(
        t(positive), t(negatives), t(intra), t(valid),
        intra_weight=2.5, inter_weight=0.5, temperature=0.3, reading=reading,
    )  # fmt: skip
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)


def test_log_reading_counts_a_negative_as_often_as_its_weight() -> None:
    cosines, intra = torch.tensor([[0.3]]), torch.tensor([[True]])
    settings = {"intra_weight": 3.0, "inter_weight": 1.0, "temperature": 0.2, "reading": "log"}
    once = representation_loss(
        torch.tensor([0.9]), cosines, intra, torch.ones(1, 1, dtype=torch.bool), **settings
    )
    thrice = representation_loss(
        torch.tensor([0.9]),
        cosines.repeat(1, 3),
        ~intra.repeat(1, 3),
        torch.ones(1, 3, dtype=torch.bool),
        **settings,
    )
    assert once.item() == pytest.approx(thrice.item(), rel=1e-6)


def test_readings_differ_and_an_unknown_one_is_refused() -> None:
    cosines, intra = torch.tensor([[0.5, -0.5]]), torch.tensor([[True, False]])
    settings = {"intra_weight": 2.0, "inter_weight": 0.5, "temperature": 1.0}
    np.testing.assert_allclose(
        weighted_logits(cosines, intra, reading="multiply", **settings), [[1.0, -0.25]]
    )
    np.testing.assert_allclose(
        weighted_logits(cosines, intra, reading="log", **settings),
        [[0.5 + math.log(2), -0.5 + math.log(0.5)]],
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match=r"'add'.*multiply, log"):
        weighted_logits(cosines, intra, reading="add", **settings)


def test_an_anchor_without_negatives_has_no_loss_and_a_finite_gradient() -> None:
    positive = torch.tensor([0.2], requires_grad=True)
    no = torch.zeros(1, 3, dtype=torch.bool)
    loss = representation_loss(positive, torch.rand(1, 3), no, no)
    loss.backward()
    assert loss.item() == 0
    assert positive.grad is not None and torch.isfinite(positive.grad).all()


def test_match_loss() -> None:
    rng = np.random.default_rng(2)
    a, b = unit(rng, 3, 4), unit(rng, 3, 4)
    expected = [sum((a[i, j] - b[i, j]) ** 2 for j in range(4)) for i in range(3)]
    np.testing.assert_allclose(match_loss(t(a), t(b)), expected, rtol=1e-5)


def test_rank_loss_takes_the_hardest_valid_negative() -> None:
    rng = np.random.default_rng(3)
    predicted, true, negatives = unit(rng, 6, 4), unit(rng, 6, 4), unit(rng, 6, 5, 4)
    valid = rng.random((6, 5)) < 0.5
    valid[0] = False
    expected = []
    for i in range(6):
        d = [math.dist(predicted[i], negatives[i, j]) for j in range(5) if valid[i, j]]
        expected.append(max(0.0, math.dist(predicted[i], true[i]) - min(d) + 0.4) if d else 0.0)
    assert 0 < sum(x > 0 for x in expected) < 6  # both branches of the hinge
    got = rank_loss(t(predicted), t(true), t(negatives), t(valid), margin=0.4)
    np.testing.assert_allclose(got, expected, atol=2e-6)


def test_transition_loss_sums_valid_steps_and_averages_rollouts() -> None:
    rng = np.random.default_rng(4)
    predicted, true, negatives = unit(rng, 2, 3, 4), unit(rng, 2, 3, 4), unit(rng, 2, 3, 2, 4)
    valid = np.ones((2, 3, 2), bool)
    mask = np.array([[True, True, False], [True, False, False]])
    expected = 0.0
    for b in range(2):
        for k in range(3):
            if mask[b, k]:
                match = math.dist(predicted[b, k], true[b, k]) ** 2
                nearest = min(math.dist(predicted[b, k], negatives[b, k, n]) for n in range(2))
                rank = max(0.0, math.dist(predicted[b, k], true[b, k]) - nearest + 0.3)
                expected += (0.7 * match + 0.3 * rank) / 2
    got = transition_loss(t(predicted), t(true), t(negatives), t(valid), t(mask), weight=0.7, margin=0.3)
    assert got.item() == pytest.approx(expected, rel=1e-5)


def test_a_masked_step_has_no_gradient_and_a_perfect_prediction_has_a_finite_one() -> None:
    rng = np.random.default_rng(5)
    true = t(unit(rng, 1, 2, 4))
    predicted = true.clone().requires_grad_(True)
    mask = torch.tensor([[True, False]])
    negatives = t(unit(rng, 1, 2, 3, 4))
    transition_loss(
        predicted, true, negatives, torch.ones(1, 2, 3, dtype=torch.bool), mask, weight=0.5, margin=4.0
    ).backward()
    assert predicted.grad is not None and torch.isfinite(predicted.grad).all()
    assert predicted.grad[0, 0].abs().sum() > 0
    assert predicted.grad[0, 1].abs().sum() == 0
