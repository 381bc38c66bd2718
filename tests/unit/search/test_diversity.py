"""Families of schedules and what crowding costs them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmsched.search.diversity import Niches, signature


def matmul(i=(4, 4, 1), j=(4, 4, 16), k=(4,), unroll=512, vector_iter=7):
    """Steps of a tiled matmul, as Ansor logs them."""
    return [
        ["SP", 2, 0, 512, list(i), 1],
        ["SP", 2, 4, 512, list(j), 1],
        ["SP", 2, 8, 512, list(k), 1],
        ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
        ["FU", 2, [0, 1, 2]],
        ["AN", 2, 0, 3],
        ["PR", 2, 0, f"auto_unroll_max_step${unroll}"],
        ["AN", 2, vector_iter, 2],
    ]


@pytest.mark.parametrize(
    "copy",
    [
        matmul(unroll=64),
        matmul(i=(2, 8, 1)),  # the middle of a split
        matmul(k=(8,)),  # the reduction
        [*matmul(), ["RE", 2, [1, 0]]],
        [step for step in matmul() if step[0] != "FU"],
    ],
)
def test_copies_of_one_design_share_a_signature(copy) -> None:
    assert signature(copy) == signature(matmul())


@pytest.mark.parametrize(
    "other",
    [
        matmul(j=(4, 4, 1)),  # no vector of sixteen
        matmul(i=(1, 1, 32)),  # a larger tile in registers
        matmul(i=(8, 64, 1), j=(8, 4, 16)),  # one outermost tile where there were 64
        matmul()[:-1],  # not vectorised
        [*matmul(), ["CA", 1, 2, 4]],  # computed elsewhere
        [["CHW", 2, "local"], *matmul()],
        [["RF", 2, 3, 0], *matmul()],
        [["CI", 1], *matmul()],
    ],
)
def test_another_design_has_another_signature(other) -> None:
    assert signature(other) != signature(matmul())


@pytest.mark.parametrize(
    "steps", [[], [["XX", 1, 2]], [["SP", 0, 0, None, [], 1], ["SP", 0, 0, 7, [None, 0], 1]]]
)
def test_odd_steps_are_no_error(steps) -> None:
    assert hash(signature(steps)) == hash(signature(steps))


def test_beyond_the_kept_ones_a_family_is_discounted_in_handfuls() -> None:
    shared = Niches(strength=1.0, keep=2).share(range(6), ["a"] * 5 + ["b"], [0.9, 0.8, 0.7, 0.6, 0.5, 0.1])
    np.testing.assert_allclose(shared, [0.9, 0.8, 0.35, 0.3, 0.5 / 3, 0.1], rtol=1e-6)


def test_schedules_of_one_score_are_a_crowd_too() -> None:
    niches = Niches(strength=1.0, keep=2)
    np.testing.assert_allclose(niches.share("abcd", "ffff", [0.8] * 4), [0.8, 0.8, 0.4, 0.4], rtol=1e-6)
    np.testing.assert_allclose(niches.share("dcba", "ffff", [0.8] * 4), [0.4, 0.4, 0.8, 0.8], rtol=1e-6)


def test_the_next_generation_pays_for_the_one_before() -> None:
    niches = Niches(strength=1.0, keep=1)
    niches.share(["x"], ["a"], [0.5])
    np.testing.assert_allclose(
        niches.share(["y"], ["a"], [0.4]), [0.2], rtol=1e-6
    )  # x is better: y is a copy
    np.testing.assert_allclose(niches.share(["z"], ["a"], [0.6]), [0.6], rtol=1e-6)  # the family's new best
    np.testing.assert_allclose(
        niches.share(["x"], ["a"], [0.5]), [0.25], rtol=1e-6
    )  # itself takes one place only
    assert len(niches) == 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(2.0**-20, 1.0, width=32)), max_size=60),
    st.floats(0, 10),
    st.integers(1, 8),
)
def test_sharing_is_legal_and_keeps_the_order_within_a_family(rows, strength: float, keep: int) -> None:
    families = [family for family, _ in rows]
    scores = np.array([score for _, score in rows], dtype=np.float32)
    shared = Niches(strength=strength, keep=keep).share(range(len(rows)), families, scores)
    assert shared.dtype == np.float32 and shared.shape == scores.shape
    assert np.isfinite(shared).all() and (shared > 0).all() and (shared <= scores).all()
    for family in set(families):
        mine = [place for place, other in enumerate(families) if other == family]
        best_first = sorted(mine, key=lambda place: -scores[place])
        assert (np.diff(shared[best_first]) <= 0).all()
        assert shared[best_first[0]] == scores[best_first[0]]


def test_strength_zero_changes_nothing() -> None:
    scores = np.array([0.3, 0.2, 0.1], dtype=np.float32)
    np.testing.assert_array_equal(Niches(strength=0.0, keep=1).share("abc", "aaa", scores), scores)


@pytest.mark.parametrize(
    "options",
    [{"strength": -1, "keep": 1}, {"strength": float("nan"), "keep": 1}, {"strength": 1, "keep": 0}],
)
def test_meaningless_options_are_refused(options) -> None:
    with pytest.raises(ValueError, match="got"):
        Niches(**options)


def trace(i=(4, 4, 4, 1), k=(16, 4), location=3, inlined="b1", unroll=0):
    """Steps of a tiled matmul with its padding, as MetaSchedule's traces give them."""
    groups = [
        [["GetSBlock", [], ["pad", "main"], [inlined]], ["ComputeInline", [inlined], [], []]],
        [
            ["SamplePerfectTile", ["l2"], [4, 64], ["v5", "v6", "v7", "v8"], list(i)],
            ["Split", ["l2", "v5", "v6", "v7", "v8"], [1, 0], ["l9", "l10", "l11", "l12"]],
        ],
        [
            ["SamplePerfectTile", ["l3"], [2, 64], ["v13", "v14"], list(k)],
            ["Split", ["l3", "v13", "v14"], [1, 0], ["l15", "l16"]],
        ],
        [["SampleComputeLocation", ["b0"], [], ["l17"], location], ["ComputeAt", ["b0", "l17"], [1], []]],
        [
            ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v18"], unroll],
            ["Annotate", ["b0", "v18"], ["meta_schedule.unroll_explicit"], []],
        ],
    ]
    return [[group[-1][0], group] for group in groups]


def test_copies_of_one_trace_share_a_signature() -> None:
    copies = [trace(i=(4, 2, 8, 1)), trace(k=(4, 16)), trace(location=5), trace(unroll=1)]
    assert {signature(copy) for copy in copies} == {signature(trace())}


def test_traces_that_differ_in_tile_or_structure_do_not() -> None:
    others = [
        trace(i=(1, 1, 4, 16)),
        trace(location=-1),
        trace(location=-2),
        trace()[1:],
        trace(inlined="b7"),
    ]
    assert len({signature(other) for other in [trace(), *others]}) == 6
