"""Traversals on a space whose best row is known: what they find, and that a seed decides it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from construct_spaces import BEST, graph_of, product, scored

from wmsched.base.errors import UnknownName
from wmsched.construct import (
    CHOICES,
    TRAVERSALS,
    Draw,
    GensorWalk,
    LearnedWalk,
    choice_of,
    traversal_of,
)
from wmsched.construct.graph import Graph, unscheduled
from wmsched.construct.learned import drawn
from wmsched.search.evolution import Evolution

SPACE, WORKLOAD = product(16, 16, 8)
GRAPH = graph_of(SPACE, WORKLOAD)


def start(count: int, seed: int = 0, space=SPACE) -> list:
    return [[0, row] for row in space.random(count, np.random.default_rng(seed))]


def found_by(traversal, *, seed: int = 0, graph: Graph = GRAPH, score=scored) -> list:
    rng = random.Random(seed)
    walk = traversal.on(graph) if hasattr(traversal, "on") else traversal

    def mutate(schedule):
        row = SPACE.mutate(schedule[1], rng)
        return None if row is None else [0, row]

    return walk(start(traversal.population, seed), score, mutate, rng)


def test_the_learned_walk_climbs_to_the_best_row() -> None:
    for seed in range(3):
        found = found_by(LearnedWalk(population=16, chains=4, steps=24), seed=seed)
        assert found[0][1] == [0, BEST]


def test_the_learned_walk_climbs_from_the_unscheduled_row_too() -> None:
    found = found_by(LearnedWalk(population=4, chains=4, steps=40, start="unscheduled"))
    assert found[0][1] == [0, BEST]


def test_today_s_evolution_is_a_traversal_and_a_draw_is_the_least() -> None:
    evolved, drawn_ones = found_by(Evolution(population=128, generations=6)), found_by(Draw(128))
    assert evolved[0][1] == [0, BEST]
    assert [one for _, one in drawn_ones] == sorted(
        [one for _, one in drawn_ones], key=lambda one: -scored([b""], [one])[0]
    )
    assert len(drawn_ones) == 128


@pytest.mark.parametrize("name", TRAVERSALS)
def test_a_seed_decides_what_a_traversal_finds(name) -> None:
    small = {"evolution": Evolution(population=32, generations=2), "draw": Draw(32)}
    traversal = small.get(name, TRAVERSALS[name])
    assert found_by(traversal, seed=5) == found_by(traversal, seed=5)
    assert found_by(traversal, seed=5) != found_by(traversal, seed=6)


@pytest.mark.parametrize("name", TRAVERSALS)
def test_what_has_no_score_is_not_returned(name) -> None:
    def score(keys, schedules):
        values = scored(keys, schedules)
        return np.where([row[-1] == 2 for _, row in schedules], np.nan, values)

    found = found_by(TRAVERSALS[name], score=score)
    assert found and all(one[1][-1] != 2 for _, one in found)


def test_gensor_tiles_what_was_unscheduled_and_keeps_the_choices() -> None:
    space, workload = product(128, 128, 128)
    graph = graph_of(space, workload)
    mine = start(4, space=space)
    found = GensorWalk(ranking="own").on(graph)(mine, scored, lambda one: None, random.Random(0))
    block, levels = graph.blocks[0], graph.levels
    times = [block.moving_time(row, levels) for _, (_, row) in found]
    assert times == sorted(times)
    assert times[0] < block.moving_time(unscheduled(space, mine[0][1]), levels) / 4
    assert {row[-1] for _, (_, row) in found} <= {row[-1] for _, row in mine}
    assert not any(block.overflows(row, levels) for _, (_, row) in found)


def test_gensor_s_states_may_be_ranked_by_the_model() -> None:
    found = found_by(GensorWalk(ranking="model"))
    scores = scored([], [one for _, one in found])
    assert (np.diff(scores) <= 0).all()


def test_gensor_on_a_gpu_returns_what_fits_a_block() -> None:
    space, workload = product(256, 256, 64, gpu=True)
    graph = Graph([space], workload, lambda schedules: (np.zeros(len(schedules)),) * 2)
    mine = start(4, space=space)
    found = GensorWalk().on(graph)(mine, lambda keys, all_: np.ones(len(all_)), None, random.Random(1))
    assert found and all(space.fits(row) for _, (_, row) in found)
    assert [level.name for level in graph.levels] == ["shared", "registers"]
    assert any(row[1] * row[6] > 1 for _, (_, row) in found)  # virtual threads


def test_a_space_without_tiles_is_left_to_the_score() -> None:
    graph = graph_of(SPACE, WORKLOAD)
    graph.blocks = [None]
    found = found_by(GensorWalk(), graph=graph)
    assert [one for _, one in found] == [one for _, one in found_by(Draw(64))]


def test_neighbours_differ_in_one_decision_and_are_all_there() -> None:
    row = (2, 8, 1, 1, 16, 1, 1, 1, 8, 1, 0)
    around = GRAPH.neighbours([0, row])
    assert len(around) == 6 + 3 + 1 + 2  # two lengths to three others each, one to three, one to one, choices
    assert len({tuple(one[1]) for one in around}) == len(around)
    for _, other in around:
        changed = {
            0 if k < 4 else 1 if k < 8 else 2 if k < 10 else 3 for k in range(11) if row[k] != other[k]
        }
        assert len(changed) == 1


def test_logits_are_drawn_in_proportion_and_nan_never() -> None:
    rng = random.Random(0)
    counts = np.bincount([drawn(np.array([np.nan, 0.0, np.log(3)]), rng) for _ in range(4000)], minlength=3)
    assert counts[0] == 0 and 0.22 < counts[1] / 4000 < 0.28
    assert drawn(np.array([np.nan]), rng) is None


def test_names() -> None:
    assert traversal_of("gensor") is TRAVERSALS["gensor"] and choice_of("spread") is CHOICES["spread"]
    mine = Draw(3)
    assert traversal_of(mine) is mine
    with pytest.raises(UnknownName, match="no traversal is called 'annealing'; there are evolution, draw"):
        traversal_of("annealing")
    with pytest.raises(UnknownName, match="no choice"):
        choice_of("best")


def test_wrong_options_are_told() -> None:
    with pytest.raises(ValueError, match="eq1='both' is none of printed, words"):
        GensorWalk(eq1="both")
    with pytest.raises(ValueError, match="threshold"):
        GensorWalk(temperature=1.0, threshold=2.0)
    with pytest.raises(ValueError, match="neither drawn nor unscheduled"):
        LearnedWalk(start="best")
    with pytest.raises(ValueError, match="cold"):
        LearnedWalk(cold=2.0)
    with pytest.raises(ValueError, match="on no graph"):
        GensorWalk()(start(1), scored, lambda one: None, random.Random(0))
