"""Searches that stalls, slow spells, clock changes and a neighbour disturb choose as undisturbed ones do."""

from __future__ import annotations

import functools
import random
import tempfile
from pathlib import Path

import pytest
from disturbed import (
    ALLOWED,
    KINDS,
    PARALLEL,
    SERIAL,
    Found,
    Search,
    Spell,
    World,
    check,
    made_up_tasks,
    moved,
    stages,
)

TRIALS = 160
SEEDS = [seed if seed < 6 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(20)]


def search(seed: int, spells: list[Spell], *, robust: bool = True) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        made = Search(World(spells, seed), Path(folder), robust=robust)
        return made.run(made_up_tasks(seed), TRIALS)


@functools.cache
def alone(seed: int) -> Found:
    return search(seed, [])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disturbance_at_any_stage_changes_little(seed: int) -> None:
    """Each seed has three of the kinds, one at each stage; all kinds come at all stages."""
    for place, span in enumerate(stages(alone(seed)).values()):
        made = list(KINDS.values())[(seed + 2 * place) % len(KINDS)]
        check(search(seed, made(*span, random.Random(seed))), alone(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_disturbances_at_all_stages_change_little(seed: int) -> None:
    luck = random.Random(seed)
    spans = stages(alone(seed)).values()
    spells = [one for span in spans for one in luck.choice(list(KINDS.values()))(*span, luck)]
    check(search(seed, spells), alone(seed))


def test_without_revisions_light_tasks_take_the_search() -> None:
    """What was seen: the references of some functions were timed in a spell that ended soon after."""
    worse, moves, revised = [], [], 0
    for seed in range(4):
        ended = alone(seed).ended["first rounds"]
        spells = [Spell(0.5 * ended, 1.5 * ended, {PARALLEL: 20.0, SERIAL: 1.3})]
        before, now = search(seed, spells, robust=False), search(seed, spells)
        worse.append(before.model / alone(seed).model)
        moves.append((moved(before, alone(seed)), moved(now, alone(seed))))
        revised += now.revised
        assert not before.revised
        assert now.model <= ALLOWED * alone(seed).model and now.over_share() == []
    assert revised and max(worse) > ALLOWED
    before, after = (sum(shares) for shares in zip(*moves))
    assert before > 2 * after


def test_a_neighbour_that_stays_costs_little_time() -> None:
    whole = [Spell(0.0, 1e9, {PARALLEL: 1.3}, slice_seconds=6e-3, chance=0.3)]
    found = search(3, whole)
    assert found.model <= ALLOWED * alone(3).model
    assert found.over_share() == []
    assert found.ended["candidates"] < 2 * alone(3).ended["candidates"]
