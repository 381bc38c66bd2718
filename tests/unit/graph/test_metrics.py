"""Metrics and loss against their formulas, written out pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from wmsched.graph import best_of, kendall_tau, pairwise_hinge_loss, slowdown, tile_score
from wmsched.graph.evaluate import summarize
from wmsched.graph.metrics import quality

PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 5)), min_size=2, max_size=9)


@given(PAIRS)
def test_tau_a_is_equation_9_and_tau_b_the_official_one(pairs: list[tuple[int, int]]) -> None:
    s, r = (np.array(values, float) for values in zip(*pairs))
    n = len(s)
    total = sum(np.sign(s[i] - s[j]) * np.sign(r[i] - r[j]) for i in range(n) for j in range(i + 1, n))
    assert kendall_tau(s, r, variant="a") == pytest.approx(2 / (n * (n - 1)) * total)
    np.testing.assert_allclose(kendall_tau(s, r), kendalltau(s, r).statistic, equal_nan=True)


@given(PAIRS, st.integers(1, 12))
def test_slowdown_and_tile_score_are_their_definitions(pairs: list[tuple[int, int]], k: int) -> None:
    s, r = (np.array(values, float) for values in zip(*pairs))
    first = sorted(range(len(s)), key=lambda i: s[i])[:k]
    best, chosen = min(r), min(r[i] for i in first)
    assert slowdown(s, r, k) == pytest.approx((chosen - best) / best)
    assert tile_score(s, r, k=k) == pytest.approx(2 - chosen / best)  # Eq 10
    assert best_of(s, r, k=k) == pytest.approx(best / chosen)


@given(PAIRS)
def test_the_loss_is_equation_8_pair_by_pair(pairs: list[tuple[int, int]]) -> None:
    s, r = (np.array(values, float) for values in zip(*pairs))
    n = len(s)
    total = sum(max(0.0, 1 - (s[i] - s[j])) for i in range(n) for j in range(n) if r[i] > r[j])
    scores, runtimes = torch.tensor(s), torch.tensor(r)
    assert pairwise_hinge_loss(scores, runtimes).item() == pytest.approx(total)
    assert pairwise_hinge_loss(scores, runtimes, reduction="mean").item() == pytest.approx(total / n**2)


def test_the_loss_pushes_slower_configurations_up() -> None:
    scores = torch.zeros(3, requires_grad=True)
    pairwise_hinge_loss(scores, torch.tensor([1.0, 2.0, 2.0])).backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [2, -1, -1]


def test_what_has_no_order_is_nan_and_what_is_no_score_is_refused() -> None:
    assert np.isnan(kendall_tau([1, 1], [1, 2]))
    assert np.isnan(kendall_tau([1], [1]))
    for scores, runtimes, message in (
        ([1, 2], [1], "one length"),
        ([], [], "one length"),
        ([float("nan"), 1], [1, 2], "1 of 2 scores are not finite"),
        ([1, 2], [0, 1], "runtimes must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            kendall_tau(scores, runtimes)
    with pytest.raises(ValueError, match="k=0"):
        slowdown([1], [1], 0)
    with pytest.raises(ValueError, match="variant='c'"):
        kendall_tau([1], [1], variant="c")


def test_a_summary_has_means_and_intervals_over_graphs() -> None:
    rows = [{"graph": "a", "nodes": 3, "configs": 3} | quality([1, 2, 3], [1, 2, 3], kind="layout")]
    rows += [{"graph": "b", "nodes": 3, "configs": 3} | quality([3, 2, 1], [1, 2, 3], kind="layout")]
    rows += [{"graph": "c", "nodes": 3, "configs": 2} | quality([3, 2], [1, 1], kind="layout")]
    table = summarize(rows)
    assert table["tau"]["mean"] == 0 and table["tau"]["graphs"] == 2  # c has nothing to order
    assert -1 <= table["tau"]["low"] < 0 < table["tau"]["high"] <= 1
    assert table["slowdown_1"]["mean"] == pytest.approx(2 / 3)
    assert {"slowdown_1", "slowdown_10", "slowdown_100"} < set(table)
    assert summarize([]) == {}
