"""How a model's trials are shared among its tasks; no TVM."""

from __future__ import annotations

import math

from wmsched.search.sharing import Progress, next_task, time_share


def done(*seconds: float, weight: int = 1, **more: float) -> Progress:
    """A task with so many rounds of one trial."""
    task = Progress(**more)
    task.weight = weight
    for each in seconds:
        task.take(each)
        task.end_round()
    return task


def test_a_task_above_a_third_of_the_trials_has_a_third_of_the_time() -> None:
    heavy, light, other = done(4.0), done(*[1.0] * 4), done(1.0)
    assert next_task([heavy, light, other], 1, 12) is heavy
    tasks = [done(*[3.0] * 4), done(2.9), done(2.9), done(2.9)]
    assert time_share(tasks[0], tasks) < 1 / 3
    tasks[0].rounds = [9.0] * 2  # its gradient is the largest
    assert next_task(tasks, 1, 12) is not tasks[0]
    assert next_task(tasks, 1, math.inf) is not tasks[0]
    for task in tasks[1:]:
        task.finished = True
    assert next_task(tasks, 1, 12) is tasks[0]


def test_what_no_machine_takes_decides_no_more_than_what_it_may_take() -> None:
    doubtful, sound = done(20.0, ceiling=0.5), done(1.0)
    assert doubtful.plausible == 0.5 and next_task([doubtful, sound], 1) is sound
    assert done(1e-9, floor=0.1).plausible == 0.1
    assert done(20.0).gradient > done(20.0, ceiling=0.5).gradient


def test_corrected_times_change_each_round_s_best() -> None:
    task = done(20.0, 40.0, 1.5)
    assert task.best == 1.5 and task.rounds == [20.0, 20.0, 1.5]
    task.correct({0: 0.05, 1: 0.05})
    assert task.best == 1.0 and task.rounds == [1.0, 1.0, 1.0] and task.times == [1.0, 2.0, 1.5]
    failed = done(math.nan, 2.0)
    failed.correct({1: 0.5})
    assert failed.best == 1.0 and failed.rounds == [math.inf, 1.0]
