"""The integer program over measured costs: the least sum, then others that differ, today's rules never."""

from __future__ import annotations

import itertools

import numpy as np

from wmsched.tune.graph.program import MIN_GAIN, Costs, best_choices


def test_the_first_is_the_least_sum_of_all() -> None:
    random = np.random.default_rng(0)
    costs = {
        key: Costs(weight, {(k,): float(random.uniform(1, 2)) for k in range(3)})
        for key, weight in zip("abcd", (1, 5, 2, 3), strict=True)
    }

    def total(taken: dict[str, tuple[int, ...]]) -> float:
        return sum(
            costs[key].weight * costs[key].seconds[own] * (1 + MIN_GAIN * any(own))
            for key, own in taken.items()
        )

    every = [
        dict(zip(costs, ((k,) for k in numbers), strict=True))
        for numbers in itertools.product(range(3), repeat=4)
        if any(numbers)
    ]
    found = best_choices(costs, 3)
    assert found[0] == min(every, key=total)
    assert [total(one) for one in found] == sorted(total(one) for one in found)
    assert len({tuple(sorted(one.items())) for one in found}) == len(found) == 3


def test_where_the_rules_are_fastest_one_other_is_given() -> None:
    costs = {"a": Costs(1, {(0,): 1.0, (1,): 1.02, (2,): 3.0}), "b": Costs(4, {(0, 0): 1.0, (0, 1): 2.0})}
    assert best_choices(costs, 5) == [{"a": (1,), "b": (0, 0)}]


def test_nothing_to_choose_gives_nothing() -> None:
    assert best_choices({}, 4) == []
    assert best_choices({"a": Costs(1, {(0,): 1.0})}, 4) == []
