"""AutoScheduler's scheduler on a machine that others disturb: made-up programs, its own choice of tasks."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from disturbed import (
    KINDS,
    PARALLEL,
    SERIAL,
    Found,
    MadeUp,
    Search,
    Spell,
    World,
    check,
    clock_of,
    made_up_tasks,
    stages,
)
from stand_in import StandIn
from tvm import auto_scheduler

from wmsched.ansor.task_scheduler import TaskScheduler

COUNT, TRIALS = 14, 160  # tasks and trials
SEEDS = [seed if seed < 2 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(20)]


class Policy:
    """In place of a `SearchPolicy`: it finds the candidates of a made-up task in their order."""

    callbacks = ()

    def __init__(self, search: Search, own: MadeUp, others: list[MadeUp], task, ledger) -> None:
        self.search, self.progress, self.others = search, own, others
        self.task, self.ledger = task, ledger

    def continue_search_one_round(self, count: int, _measurer):
        task, results = self.progress, []
        for _ in range(min(count, len(task.candidates) - task.trials)):
            library, seconds = self.search.time(task)
            self.ledger.add(library, self, str(task.trials).encode(), task.trials)
            task.take(seconds)
            results.append(SimpleNamespace(costs=[SimpleNamespace(value=seconds)]))
        self.search.end_round(task, self.others)
        return results, results

    def correct(self, _keys, trials) -> None:
        self.search.revised += len(trials)
        self.progress.correct(trials)


@pytest.fixture
def tune(matmul, monkeypatch):
    """Search made-up tasks as TVM's loop and our scheduler do, and choose among the finalists."""
    monkeypatch.setattr(auto_scheduler.task_scheduler, "make_search_policies", lambda made, *_: made)

    def search(seed: int, spells: list[Spell]) -> Found:
        tasks, world = made_up_tasks(seed, COUNT), World(spells, seed)
        weights = [task.weight for task in tasks]
        scheduler = TaskScheduler([matmul] * COUNT, weights, callbacks=[], cost_model=StandIn(), places=1)
        scheduler.tag_to_group_id = {}  # made-up tasks are not alike
        np.random.seed(seed)
        with tempfile.TemporaryDirectory() as folder, clock_of(world):
            searches: list[Search] = []

            def policies(*_: object) -> list[Policy]:
                own = Search(world, Path(folder), corrections=scheduler.ledger.corrections)
                searches.append(own)
                return [Policy(own, one, tasks, matmul, scheduler.ledger) for one in tasks]

            monkeypatch.setattr(scheduler, "_make_policies", policies)
            options = {"num_measure_trials": TRIALS, "num_measures_per_round": 4, "verbose": 0}
            scheduler.tune(auto_scheduler.TuningOptions(**options))
            return searches[0].finish(tasks)

    return search


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disturbance_at_any_stage_changes_little(tune, seed: int) -> None:
    """Each seed has three of the kinds, one at each stage; all kinds come at all stages."""
    alone = tune(seed, [])
    for place, span in enumerate(stages(alone).values()):
        made = list(KINDS.values())[(seed + 2 * place) % len(KINDS)]
        check(tune(seed, made(*span, random.Random(seed))), alone)


def test_references_of_a_spell_are_revised_in_a_run(tune) -> None:
    alone = tune(0, [])
    ended = alone.ended["first rounds"]
    found = tune(0, [Spell(0.5 * ended, 1.5 * ended, {PARALLEL: 20.0, SERIAL: 1.3})])
    assert found.revised
    check(found, alone)
