"""A search whose references are revised: its records, its tasks and what it searches on with."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import programs as P
import pytest
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.target import Target

from wmsched.measure.roofline import Roofline
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.measure.measurer import Measurer
from wmsched.metaschedule.task_scheduler import Search
from wmsched.metaschedule.tasks import Task, set_bounds
from wmsched.schedules import database as meta_database
from wmsched.schedules.database import mean
from wmsched.schedules.log_file import GrowingLog
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.in_model_selection import database_of

QUICK = functools.partial(
    ms.search_strategy.EvolutionarySearch, population_size=16, genetic_num_iters=1, init_min_unmeasured=8
)


class Disturbed:
    """A measurer whose first programs are timed at twenty times their time, which the fourth one shows."""

    def __init__(self) -> None:
        self.latest, self.count = "", 0
        self.corrections = SimpleNamespace(due=self._due)

    def measure(self, candidates):
        for candidate in candidates:
            self.count += 1
            self.latest = f"program{self.count}"
            seconds = 1e-3 + 1e-5 * self.count
            yield candidate, RunnerResult([seconds * (20 if self.count < 4 else 1)] * 3, None)

    def _due(self) -> dict[str, float]:
        if self.count != 4 or self.latest != "program4":
            return {}
        self.latest = "told"
        return {f"program{number}": 0.05 for number in (1, 2, 3)} | {"machine's test": 0.05}


def test_records_and_tasks_are_corrected_and_the_search_goes_on(tmp_path: Path) -> None:
    import_intrinsics(Target(P.CPU))  # of a processor not those of all GPUs, which take long
    database, corrected = database_of(tmp_path), []
    task = Task("matmul", P.module(P.matmul()))
    search = Search(
        [task],
        Target(P.CPU),
        database,
        ms.cost_model.RandomModel(seed=1),
        Disturbed(),
        round_size=3,
        strategy=QUICK,
        log=GrowingLog(tmp_path / meta_database.RECORDS),
        reopen=lambda: database_of(tmp_path),
        corrected=lambda one: corrected.append((one.name, one.best)),
    )
    assert search.run(6) == 6
    expected = [1e-3 + 1e-5 * number for number in range(1, 7)]
    assert task.times == pytest.approx(expected) and task.best == pytest.approx(expected[0])
    assert task.rounds == pytest.approx([expected[0]] * 2)
    assert corrected == [("matmul", pytest.approx(expected[0]))]
    assert search.database is not database
    for known in (search.database, database_of(tmp_path)):
        assert meta_database.check(tmp_path) == 6
        records = known.get_all_tuning_records()
        assert sorted(mean(record.run_secs) for record in records) == pytest.approx(expected)
        assert known.query_tuning_record(task.mod, Target(P.CPU), "main") is not None
    assert len(task.known) == 6  # nothing was measured twice


def test_a_search_without_a_file_leaves_its_records(tmp_path: Path) -> None:
    task = Task("matmul", P.module(P.matmul()))
    database = ms.database.MemoryDatabase()
    model = ms.cost_model.RandomModel(seed=1)
    search = Search([task], Target(P.CPU), database, model, Disturbed(), round_size=3, strategy=QUICK)
    assert search.run(6) == 6 and max(task.times) > 1e-2


def test_a_measured_base_is_revised_and_what_was_recorded_is_due() -> None:
    """By TVM's runner, in its process: the note of the reference is made twenty times too high between."""
    measurer = Measurer(Target(meta_host_target()), places=2, min_repeat_ms=0, builders=1, revises=True)
    candidates = P.sampled(P.context(P.softmax(), meta_host_target()), 4)
    assert measurer.corrections is not None
    folder = Path(measurer.corrections.folder)
    found: dict[str, float] = {}
    costs = []
    for candidate in candidates * 6:
        if found:
            break
        ((_, result),) = measurer.measure([candidate])
        assert result.run_secs, result.error_msg
        costs.append((measurer.latest, mean(result.run_secs)))
        found |= measurer.corrections.due()
        if len(costs) == 1:
            (place,) = folder.glob("*/reference.json")
            note = json.loads(place.read_text())
            note["base"], note["lows"] = 20 * note["base"], []
            place.write_text(json.dumps(note))
            # another process reads it
            measurer._runner.runner.runner.pool = type(measurer._runner.runner.runner.pool)(max_workers=1)
    assert costs[1][0] in found and min(found.values()) < 0.5
    assert all(math.isfinite(cost) for _, cost in costs)


def test_bounds_of_a_task_are_its_arithmetic_and_its_traffic() -> None:
    task = Task("softmax", P.module(P.softmax()), 1, 1e6)
    set_bounds([task], Roofline(threads=2, gflops=10.0, bandwidth=((1 << 28, 10.0),)))
    assert 0 < task.floor < 1e-4 < task.ceiling < 1
