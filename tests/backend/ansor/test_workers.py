"""Builder and runner processes that stay for a run: how many start, and what becomes of one that fails."""

from __future__ import annotations

import os

import pytest
from ansor_options import SMALL, options
from pool_end import deleted_by_a_starting_thread
from tvm.auto_scheduler import RandomModel, SketchPolicy, measure
from tvm.contrib.popen_pool import PopenPoolExecutor, PopenWorker

from wmsched.ansor.task_scheduler import TaskScheduler
from wmsched.ansor.workers import kept_workers
from wmsched.schedules.log_file import tally


@pytest.fixture
def started(monkeypatch) -> list[PopenWorker]:
    """The workers whose process was started, once for each time."""
    found: list[PopenWorker] = []
    start = PopenWorker._start

    def counted(worker) -> None:
        if worker._proc is None:
            found.append(worker)
        start(worker)

    monkeypatch.setattr(PopenWorker, "_start", counted)
    return found


def tuned(matmul, log, **more) -> int:
    scheduler = TaskScheduler([matmul], callbacks=[], seed=3, **more)
    how = options(log, 12, per_round=12, builder=measure.LocalBuilder(timeout=30, n_parallel=2))
    scheduler.tune(how, "sketch.random", search_policy_params=dict(SMALL))
    (count,) = tally(log).trials.values()
    return count


@pytest.mark.slow
def test_a_run_starts_each_process_once(matmul, tmp_path, started) -> None:
    assert tuned(matmul, tmp_path / "kept.json") == 12
    assert len(started) == 3  # two builders, one runner
    assert not any(worker.is_alive() for worker in started)
    assert measure.PopenWorker is PopenWorker and measure.PopenPoolExecutor is PopenPoolExecutor
    kept = len(started)
    assert tuned(matmul, tmp_path / "anew.json", keep_workers=False) == 12
    assert len(started) - kept == 9  # three batches of four, two builders and a runner each


GOOD = ((1e-3,), 0, None)
FAILED = ((1e10,), 4, "the program did not run")


def answered(runner, result: tuple) -> tuple:
    """What a runner gives back that is asked for `result`; the process has no module of these tests."""
    runner.send(tuple, (result,))
    return runner.recv()


def test_a_runner_in_which_something_failed_is_replaced(started) -> None:
    with kept_workers():
        for result, alive in ((GOOD, True), (FAILED, False), (GOOD, True)):
            runner = measure.PopenWorker()
            assert answered(runner, result) == result
            assert runner.worker.is_alive() is alive
    assert len(started) == 2


def test_a_runner_that_dies_is_replaced(started) -> None:
    with kept_workers():
        runner = measure.PopenWorker()
        runner.send(os._exit, (1,))
        with pytest.raises(ChildProcessError):
            runner.recv()
        assert answered(runner, GOOD) == GOOD
    assert len(started) == 2


def test_a_runner_that_hangs_is_replaced(started) -> None:
    import time

    with kept_workers():
        runner = measure.PopenWorker()
        runner.send(time.sleep, (60,), timeout=1)
        with pytest.raises(TimeoutError):
            runner.recv()
        assert answered(runner, GOOD) == GOOD
    assert len(started) == 2


def test_processes_that_ended_between_batches_cost_no_program(matmul, started) -> None:
    policy = SketchPolicy(matmul, RandomModel(), params=dict(SMALL), seed=3, verbose=0)
    inputs = [measure.MeasureInput(matmul, state) for state in policy.sample_initial_population()[:6]]
    builder = measure.LocalBuilder(timeout=30, n_parallel=2)
    runner = measure.LocalRunner(timeout=30, number=1, repeat=1, min_repeat_ms=1)
    with kept_workers():
        for batch in (inputs[:3], inputs[3:]):
            for worker in started:  # as Ctrl-C does during a search
                if worker.is_alive():
                    worker._proc.kill()
                    worker._proc.wait()
            results = runner.run(batch, builder.build(batch, verbose=0), verbose=0)
            assert [int(result.error_no) for result in results] == [0, 0, 0]
    assert len(started) == 6


def test_other_pools_and_workers_are_tvm_s_own() -> None:
    with kept_workers(), kept_workers():
        assert type(measure.PopenPoolExecutor(2)) is PopenPoolExecutor  # an RPC runner's
        assert measure.PopenPoolExecutor(2) is not measure.PopenPoolExecutor(2)
        assert type(measure.PopenWorker(None, ())) is PopenWorker
        assert measure.PopenWorker() is measure.PopenWorker()
    assert measure.PopenWorker is PopenWorker


def test_all_is_as_before_after_an_error() -> None:
    with pytest.raises(ValueError, match="within"), kept_workers():
        raise ValueError("within")
    assert measure.PopenWorker is PopenWorker and measure.PopenPoolExecutor is PopenPoolExecutor


def test_a_pool_is_deleted_wherever_garbage_is_collected() -> None:
    assert deleted_by_a_starting_thread(PopenPoolExecutor)
