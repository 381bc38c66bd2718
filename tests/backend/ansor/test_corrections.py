"""AutoScheduler runs whose references are revised: logs, policies and latencies are corrected."""

from __future__ import annotations

import numpy as np
import pytest
from stand_in import StandIn
from tvm import auto_scheduler

from wmsched.ansor.task_scheduler import TaskScheduler
from wmsched.measure.corrections import Corrections
from wmsched.schedules.log_file import tally
from wmsched.schedules.steps import parse_record

SMALL = {"evolutionary_search_population": 64, "sample_init_min_population": 20}


class Told:
    """A callback of the scheduler that keeps what was corrected."""

    def __init__(self) -> None:
        self.found: list[tuple[int, float]] = []

    def pre_tune(self, scheduler, task_id) -> None:
        pass

    def post_tune(self, scheduler, task_id) -> None:
        pass

    def corrected(self, scheduler, task_id) -> None:
        self.found.append((task_id, float(scheduler.best_costs[task_id])))


def test_a_run_s_log_and_latencies_are_corrected(matmul, tmp_path, monkeypatch) -> None:
    """The second round shows that the first one's reference was timed a thousand times too high."""
    log, told, calls, before = tmp_path / "log.json", Told(), [], {}

    def due(self) -> dict[str, float]:
        calls.append(len(scheduler.ledger._programs))
        if len(calls) != 2:
            return {}
        before.update({number: costs(line) for number, line in enumerate(log.read_text().splitlines())})
        return dict.fromkeys(list(scheduler.ledger._programs)[: calls[0]], 1e-3)

    monkeypatch.setattr(Corrections, "due", due)
    scheduler = TaskScheduler([matmul], callbacks=[told], cost_model=StandIn(), seed=3, rounds=3, places=2)
    scheduler.tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=6,
            num_measures_per_round=2,
            builder=auto_scheduler.LocalBuilder(timeout=30, n_parallel=2),
            runner=auto_scheduler.LocalRunner(timeout=30, number=1, repeat=1, min_repeat_ms=1),
            measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
            verbose=0,
        ),
        search_policy_params=dict(SMALL),
    )
    after = {number: costs(line) for number, line in enumerate(log.read_text().splitlines())}
    corrected = [k for k in before if after[k] != before[k]]
    assert len(after) == 6 and len(corrected) == calls[0] > 0
    for k in corrected:
        assert after[k] == pytest.approx([1e-3 * cost for cost in before[k]])
    (best,) = tally(log).best.values()
    assert scheduler.best_costs[0] == pytest.approx(best.measurement.seconds, rel=1e-4)
    history = scheduler.task_costs_history[0]
    assert len(history) == 3 and history == sorted(history, reverse=True)
    assert history[0] == pytest.approx(scheduler.best_costs[0], rel=1e-4)
    assert told.found == [(0, pytest.approx(float(scheduler.best_costs[0]), rel=1e-4))]


def costs(line: str) -> list[float]:
    return list(parse_record(line.encode(), place="log").measurement.costs)


def test_a_task_with_its_share_of_the_trials_waits_for_the_others() -> None:
    scheduler = object.__new__(TaskScheduler)
    scheduler.tasks, scheduler.dead_tasks, scheduler.num_measures_per_round = [None] * 4, set(), 4
    scheduler.objective_func, scheduler.task_cts = sum, [3, 1, 1, 1]
    scheduler.tune_option = type("Options", (), {"num_measure_trials": 36})
    scheduler.best_costs = np.array([1.0, 1.0, 1.5, 1.0])
    assert scheduler._within_share(1) == 1
    assert scheduler._within_share(0) == 2  # 12 of 36 trials, and less than a third of the time
    scheduler.best_costs[0] = 9.0
    assert scheduler._within_share(0) == 0
    scheduler.best_costs[0], scheduler.dead_tasks = 1.0, {1, 2, 3}
    assert scheduler._within_share(0) == 0
