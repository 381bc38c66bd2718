"""Configurations to measure: the rules first, then what the sum of the costs says, then random ones."""

from __future__ import annotations

from data_builder.graphs.sampling import Part, added, sampled

PARTS = [
    Part((0,), "a", ((0,), (1,), (2,))),
    Part((1, 2), "b", ((0, 0), (0, 1), (1, 0))),
    Part((3,), "a", ((0,), (1,), (2,))),
    Part((4,), "", ((0,), (1,))),
]
SECONDS = {"a": {(0,): 3.0, (1,): 2.0, (2,): 5.0}, "b": {(0, 0): 1.0, (0, 1): 4.0, (1, 0): 0.5}}


def test_the_sum_is_of_the_regions_that_have_costs() -> None:
    assert added(PARTS, (0, 0, 0, 0, 0), SECONDS) == added(PARTS, (0, 0, 0, 0, 1), SECONDS) == 7.0
    assert added(PARTS, (1, 1, 0, 2, 0), SECONDS) == 2.0 + 0.5 + 5.0


def test_the_rules_are_first_and_the_program_s_best_next_and_none_twice() -> None:
    found = sampled(PARTS, 5, SECONDS, 20, seed=1)
    assert found[0] == (0, 0, 0, 0, 0)
    assert found[1] == (1, 1, 0, 1, 0)  # each class at its least
    assert len(found) == len(set(found)) == 20
    assert found == sampled(PARTS, 5, SECONDS, 20, seed=1) != sampled(PARTS, 5, SECONDS, 20, seed=2)
    pairs = {part.sites: set(part.choices) for part in PARTS}
    assert all(tuple(one[site] for site in sites) in pairs[sites] for one in found for sites in pairs)


def test_a_small_graph_has_no_more_configurations_than_there_are() -> None:
    assert sorted(sampled(PARTS[3:], 5, {}, 20, seed=0)) == [(0, 0, 0, 0, 0), (0, 0, 0, 0, 1)]


def test_climbs_end_at_the_least_sum() -> None:
    least = min(added(PARTS, one, SECONDS) for one in sampled(PARTS, 5, SECONDS, 54, seed=0))
    found = sampled(PARTS, 5, SECONDS, 30, seed=3)
    climbed = [added(PARTS, one, SECONDS) for one in found[:15]]
    assert climbed.count(least) >= 2  # of the program and of a climb, which differ where no costs are
