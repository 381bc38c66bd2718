"""The score map: what Ansor may be handed, whatever a ranker says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from wmsched.search.selection import FLOOR, SelectionMap

anything = arrays(np.float64, array_shapes(max_dims=1, max_side=40), elements=st.floats())
whole = arrays(np.float64, st.integers(1, 40), elements=st.integers(-1000, 1000).map(float))


def scored(margins) -> np.ndarray:
    """A batch's scores by its own map."""
    return SelectionMap.fit(margins)(margins)


@given(anything)
def test_scores_are_always_legal(margins: np.ndarray) -> None:
    scores = scored(margins)
    assert scores.dtype == np.float32 and scores.shape == margins.shape
    assert np.isfinite(scores).all() and (scores > 0).all() and (scores <= 1).all()


@given(anything)
def test_order_is_kept_and_nan_is_lowest(margins: np.ndarray) -> None:
    scores = scored(margins)
    real = ~np.isnan(margins)
    ordered = scores[real][np.argsort(margins[real], kind="stable")]
    assert (np.diff(ordered) >= 0).all()
    if (~real).any():
        assert (scores[~real] == scores.min()).all()


@given(whole, st.integers(-1000, 1000), st.sampled_from([0.0625, 0.5, 2.0, 64.0]))
def test_only_the_shape_of_the_margins_counts(margins: np.ndarray, shift: int, scale: float) -> None:
    if np.ptp(margins) > 0:  # numbers that shift and scale without rounding
        np.testing.assert_allclose(scored(margins * scale + shift), scored(margins), rtol=1e-5)


def test_empty_batch() -> None:
    assert scored([]).shape == (0,)


def test_all_negative_margins_still_prefer_the_best() -> None:
    margins = np.linspace(-9.0, -5.0, 100)
    scores = scored(margins)
    shares = scores / scores.sum()
    assert shares[-1] == shares.max() > 2.0 / 100  # pressure
    assert shares.max() < 0.5  # and no single parent


@pytest.mark.parametrize("value", [-3.0, 0.0, 1e30, -1e300])
def test_all_equal_margins_give_every_parent_the_same_share(value: float) -> None:
    scores = scored(np.full(7, value))
    assert (scores == scores[0]).all() and scores[0] > FLOOR


def test_a_batch_of_nothing_but_nan_is_a_legal_batch() -> None:
    scores = scored([np.nan] * 4)
    assert (scores == np.float32(FLOOR)).all()


def test_pressure_on_a_bell_of_margins_is_sane() -> None:
    margins = np.random.default_rng(0).normal(-4.0, 2.5, 2048)
    scores = scored(margins)
    shares = scores / scores.sum()
    best_tenth = np.sort(shares)[-205:].sum()
    effective = 1.0 / np.square(shares).sum()  # how many parents share the offspring
    assert 0.3 < best_tenth < 0.8
    assert effective > 200


def test_later_generations_are_comparable_with_the_first() -> None:
    """A batch that is better throughout must score higher: the heap of a round holds all its generations."""
    first = np.random.default_rng(1).normal(0.0, 1.0, 500)
    fitted = SelectionMap.fit(first)
    better = first.max() + np.linspace(0.1, 40.0, 500)
    assert fitted(better).min() > fitted(first).max()
    assert (np.diff(fitted(better)) > 0).all()  # nor do they saturate in float32


def test_most_equal_and_one_outlier() -> None:
    scores = scored([0.0] * 30 + [5.0])
    assert scores[-1] > 5 * scores[0] > 0
