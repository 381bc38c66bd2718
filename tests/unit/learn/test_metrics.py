"""Ranking metrics against values worked out by hand and by brute force."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmsched.learn.evaluate import metrics

SECONDS = [4.0, 1.0, 2.0, 8.0]


def test_top_k_by_hand():
    scores = [0.9, 0.1, 0.5, 0.3]  # order: 4 s, 2 s, 8 s, 1 s
    assert metrics.top_k_score(scores, SECONDS, 1) == 1 / 4
    assert metrics.top_k_score(scores, SECONDS, 2) == 1 / 2
    assert metrics.top_k_score(scores, SECONDS, 4) == 1.0
    assert metrics.top_k_score(scores, SECONDS, 99) == 1.0
    assert metrics.regret(scores, SECONDS) == 3.0
    assert metrics.regret(scores, SECONDS, 2) == 1.0


def test_perfect_and_reversed():
    seconds = np.array(SECONDS)
    assert metrics.pairwise_accuracy(-seconds, seconds) == 1.0
    assert metrics.pairwise_accuracy(seconds, seconds) == 0.0
    assert metrics.kendall_tau(-seconds, seconds) == pytest.approx(1.0)
    assert metrics.kendall_tau(seconds, seconds) == pytest.approx(-1.0)


def test_a_constant_model_gets_no_credit():
    assert metrics.top_k_score([1, 1, 1, 1], SECONDS, 1) == 1 / 8
    assert metrics.pairwise_accuracy([1, 1, 1, 1], SECONDS) == 0.5
    assert np.isnan(metrics.kendall_tau([1, 1, 1, 1], SECONDS))


@pytest.mark.parametrize("failed", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_failed_measurement_is_infinitely_slow(failed):
    seconds = [failed, 1.0, 2.0]
    assert metrics.top_k_score([3, 2, 1], seconds, 1) == 0.0
    assert metrics.top_k_score([3, 2, 1], seconds, 2) == 1.0
    assert metrics.regret([3, 2, 1], seconds) == float("inf")
    assert metrics.pairwise_accuracy([1, 3, 2], seconds) == 1.0
    assert metrics.kendall_tau([1, 3, 2], seconds) == pytest.approx(1.0)


def test_two_failures_are_no_pair():
    nan = float("nan")
    assert metrics.pairwise_accuracy([2, 1, 3], [nan, nan, 1.0]) == 1.0
    assert np.isnan(metrics.pairwise_accuracy([2, 1], [nan, nan]))


def test_invalid_candidates_may_score_minus_infinity():
    scores = [-np.inf, -np.inf, 1.0]
    assert metrics.top_k_score(scores, [1.0, 2.0, 4.0], 1) == 0.25
    assert metrics.pairwise_accuracy(scores, [4.0, 2.0, 1.0]) == pytest.approx(2.5 / 3)
    assert metrics.kendall_tau([-np.inf, 0.5, 1.0], [4.0, 2.0, 1.0]) == pytest.approx(1.0)


def test_network_scores_average_or_pool():
    one = [(2.0, [1, 0], [2.0, 1.0]), (1.0, [0, 1], [3.0, 1.0])]  # (2*1 + 1) / (2*2 + 1)
    other = [(10.0, [1, 0], [1.0, 2.0])]
    assert metrics.network_top_k_score(one, 1) == pytest.approx(3 / 5)
    assert metrics.top_k_score_averaged([one, other], 1) == pytest.approx((3 / 5 + 1) / 2)
    assert metrics.top_k_score_pooled([one, other], 1) == pytest.approx(13 / 15)


@pytest.mark.parametrize(
    ("scores", "seconds", "k", "says"),
    [
        ([1.0], [1.0, 2.0], 1, "one length"),
        ([[1.0]], [[1.0]], 1, "one-dimensional"),
        ([float("nan"), 1.0], [1.0, 2.0], 1, "1 of 2 scores are NaN"),
        ([1.0], [float("nan")], 1, "no program"),
        ([], [], 1, "no program"),
        ([1.0], [1.0], 0, "at least 1"),
    ],
)
def test_what_cannot_be_scored_is_refused(scores, seconds, k, says):
    with pytest.raises(ValueError, match=says):
        metrics.top_k_score(scores, seconds, k)


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.sampled_from([0.5, 1.0, 2.0, 4.0, float("nan")])),
        min_size=2,
        max_size=12,
    )
)
def test_pairwise_accuracy_is_its_definition(rows):
    scores, seconds = zip(*rows)
    credit = []
    for (s, t), (u, v) in itertools.combinations(rows, 2):
        a, b = (x if np.isfinite(x) else float("inf") for x in (t, v))
        if a != b:
            credit.append(0.5 if s == u else float((s > u) == (a < b)))
    found = metrics.pairwise_accuracy(scores, seconds)
    assert np.isnan(found) if not credit else found == pytest.approx(np.mean(credit))


@given(st.permutations(range(8)), st.integers(1, 8))
def test_top_k_never_falls_with_k(order, k):
    seconds = np.arange(1.0, 9.0)
    assert metrics.top_k_score(order, seconds, k) <= metrics.top_k_score(order, seconds, min(k + 1, 8))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([float("-inf"), -1.0, 0.0, 2.0, 3.0]),
            st.sampled_from([0.5, 1.0, 2.0, 4.0, float("nan")]),
        ),
        min_size=2,
        max_size=40,
    )
)
def test_pairs_of_many_programs_are_counted_to_the_same_number(rows):
    scores, seconds = zip(*rows)
    listed = metrics.pairwise_accuracy(scores, seconds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "MAX_LISTED_PROGRAMS", 0)
        counted = metrics.pairwise_accuracy(scores, seconds)
    assert counted == listed or (np.isnan(counted) and np.isnan(listed))


def test_memory_does_not_grow_with_the_pairs():
    rng = np.random.default_rng(0)
    seconds = rng.lognormal(size=20_000)  # 200 million pairs
    tracemalloc.start()
    try:
        perfect = metrics.pairwise_accuracy(-seconds, seconds)
        guess = metrics.pairwise_accuracy(rng.random(20_000), seconds)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert perfect == 1.0 and guess == pytest.approx(0.5, abs=0.02)
    assert peak < 20 << 20
