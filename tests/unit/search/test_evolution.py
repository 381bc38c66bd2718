"""The evolution in the model: it finds what scores high, tells all that it saw, and survives any scores."""

import random

import numpy as np
import pytest

from wmsched.search.evolution import Evolution, key_of
from wmsched.search.mutations import Mutations

START = [[["SP", 0, 0, 4096, [1, 1, 1], 1], ["SP", 1, 0, 4096, [1, 1, 1], 1]]]
WANTED = (4, 16, 8)


def distance(steps) -> float:
    return sum(abs(np.log2(a / b)) for step in steps for a, b in zip(step[4], WANTED))


def closeness(keys, schedules):
    return np.array([np.exp(-distance(steps)) for steps in schedules])


def evolve(score, *, start=START, seed=1, **how):
    rng = random.Random(seed)
    return Evolution(**how)(start, score, Mutations(rng), rng)


def test_it_finds_what_a_random_walk_does_not():
    found = evolve(closeness, population=256, generations=12)
    blind = evolve(lambda keys, schedules: np.ones(len(keys)), population=256, generations=12)
    assert distance(found[0][1]) == 0.0
    assert min(distance(steps) for _, steps in blind) > 0.0


def test_all_that_was_seen_comes_once_and_best_first():
    found = evolve(closeness, population=64, generations=3)
    keys = [key for key, _ in found]
    assert len(set(keys)) == len(keys) > 64
    assert all(key == key_of(steps) for key, steps in found)
    scores = closeness(keys, [steps for _, steps in found])
    assert (np.diff(scores) <= 0).all()


def test_the_last_scores_decide():
    """A score may depend on what was seen since: a family that is full, say."""
    asked = []

    def score(keys, schedules):
        asked.append(list(keys))
        return closeness(keys, schedules) if len(asked) <= 3 else -distance_of(schedules)

    def distance_of(schedules):
        return np.array([1.0 / (1.0 + distance(steps)) for steps in schedules])

    found = evolve(score, population=32, generations=3)
    assert len(asked) == 4 and set(asked[-1]) == {key for key, _ in found}
    assert distance(found[0][1]) >= distance(found[-1][1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_has_no_score_is_no_parent_and_is_not_told(bad):
    def score(keys, schedules):
        found = closeness(keys, schedules)
        found[[steps[0][4][0] > 1 for steps in schedules]] = bad
        return found

    found = evolve(score, population=64, generations=4)
    assert found and all(steps[0][4][0] == 1 for _, steps in found)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_where_nothing_has_a_score_the_search_is_a_random_one(value):
    found = evolve(lambda keys, schedules: np.full(len(keys), value), population=16, generations=2)
    assert found == [] if np.isnan(value) else len(found) > 16


def test_no_generation_is_the_first_one_in_order():
    other = [[["SP", 0, 0, 4096, list(WANTED), 1], ["SP", 1, 0, 4096, list(WANTED), 1]]]
    found = evolve(closeness, start=START + other, population=8, generations=0)
    assert [steps for _, steps in found] == other + START


def test_the_same_seed_finds_the_same():
    first, second = (evolve(closeness, population=64, generations=3) for _ in range(2))
    assert first == second
