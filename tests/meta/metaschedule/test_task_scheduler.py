"""What the search over a model's tasks takes next, and what a model that learns is told first."""

from __future__ import annotations

import math
from functools import partial

import programs as P
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from wmsched.metaschedule import task_scheduler
from wmsched.metaschedule.defaults import uses_vector_math
from wmsched.metaschedule.task_scheduler import Search
from wmsched.metaschedule.tasks import Task
from wmsched.search.budget import FirstRounds
from wmsched.search.sharing import MAX_FAILURES_BEFORE_GRADIENT


def test_a_task_with_a_few_failures_alone_comes_before_gradients() -> None:
    search = object.__new__(Search)
    good, failed = Task("good", None, weight=9), Task("failed", None)
    search.tasks, search.round_size, search._planned = [good, failed], 1, math.inf
    for task in search.tasks:
        task.take(1.0 if task is good else math.nan)
        task.end_round()
    assert search._next() is failed
    for _ in range(MAX_FAILURES_BEFORE_GRADIENT - 1):
        failed.take(math.nan)
    assert search._next() is good


def test_every_task_has_a_round_before_the_time_is_up(monkeypatch) -> None:
    now, rounds = [0.0], []
    monkeypatch.setattr(task_scheduler, "FirstRounds", partial(FirstRounds, clock=lambda: now[0]))
    search = object.__new__(Search)
    search.round_size, search.started, search._planned = 8, lambda task: None, math.inf
    search.tasks = [Task(f"task {number}", None, flop=100 - number) for number in range(20)]

    def measured(task, count, stop):
        now[0] += 0.5 + 0.6 * count
        task.take(1.0)
        task.end_round()
        rounds.append((task.name, count))
        return count

    monkeypatch.setattr(search, "_round", measured, raising=False)
    search.run(1000, lambda: now[0] >= 60, until=60.0)
    assert [name for name, _ in rounds[:20]] == [task.name for task in search.tasks]
    assert all(1 <= count < 8 for _, count in rounds[:20])
    assert {count for _, count in rounds[20:]} == {8}


def test_vectors_are_a_processors() -> None:
    gpu, processor = Target(P.GPUS["RTX 4090"]), Target(P.CPU)
    assert uses_vector_math(processor, None) and uses_vector_math(processor, True, builder="local")
    assert not uses_vector_math(processor, None, builder="local") and not uses_vector_math(processor, False)
    assert not uses_vector_math(gpu, None) and not uses_vector_math(gpu, True)


def test_a_model_that_learns_is_told_of_failures_before_too(monkeypatch) -> None:
    candidates = P.sampled(P.context(P.softmax(), P.CPU), 4)
    database, told = ms.database.MemoryDatabase(), []
    task = Task("softmax", P.module(P.softmax()))
    workload = database.commit_workload(task.mod)
    for number, candidate in enumerate(candidates):
        seconds = [1e10] if number % 2 else [1e-3]
        trace, arguments = candidate.sch.trace, candidate.args_info
        record = ms.database.TuningRecord(trace, workload, seconds, Target(P.CPU), arguments)
        database.commit_tuning_record(record)
    search = Search([task], Target(P.CPU), database, ms.cost_model.RandomModel(seed=1), None, learns=True)
    monkeypatch.setattr(
        search,
        "cost_model",
        type("Model", (), {"update": lambda self, *given: told.append(given)})(),
    )
    monkeypatch.setattr(ms.TuneContext, "pre_tuning", lambda self, **_: None)
    search._prepare(task)
    ((_, earlier, results),) = told
    assert len(earlier) == len(results) == len(candidates)
    assert sum(result.run_secs is None for result in results) == len(candidates) // 2
