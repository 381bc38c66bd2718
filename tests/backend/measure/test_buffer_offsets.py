"""Programs timed on several sets of buffers: their costs, their errors, and TVM's own function after."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from ansor_options import SMALL, options
from tvm import nd
from tvm.auto_scheduler import RandomModel, SketchPolicy, measure

from wmsched.ansor.runner import buffers, several_places, timed
from wmsched.ansor.task_scheduler import TaskScheduler
from wmsched.ansor.workers import kept_workers
from wmsched.measure import buffer_offsets, cache_flush
from wmsched.measure.buffer_offsets import medians, more_calls

MIB = 1 << 20


def built(task, count: int):
    policy = SketchPolicy(task, RandomModel(), params=dict(SMALL), seed=3, verbose=0)
    inputs = [measure.MeasureInput(task, state) for state in policy.sample_initial_population()[:count]]
    return inputs, measure.LocalBuilder(timeout=30, n_parallel=1).build(inputs, verbose=0)


def runner(**more):
    return measure.LocalRunner(timeout=30, repeat=2, enable_cpu_cache_flush=True, **more)


@pytest.mark.parametrize("keep", [True, False])
def test_a_record_has_the_costs_of_all_places(matmul, keep, tmp_path) -> None:
    inputs, programs = built(matmul, 2)
    with several_places(3):
        if keep:
            with kept_workers():
                results = runner().run(inputs, programs, verbose=0)
        else:
            results = runner().run(inputs, programs, verbose=0)
    for result in results:
        assert int(result.error_no) == 0
        assert len(result.costs) == 6
        assert all(0 < float(cost) < 0.1 for cost in result.costs)


def test_a_scheduler_times_on_as_many_places_as_it_is_told(matmul, tmp_path) -> None:
    log = tmp_path / "log.json"
    scheduler = TaskScheduler([matmul], callbacks=[], seed=3, places=2)
    scheduler.tune(options(log, 4, per_round=4), "sketch.random", search_policy_params=dict(SMALL))
    costs = [json.loads(line)["r"][0] for line in log.read_text().splitlines()]
    assert [len(some) for some in costs] == [2, 2, 2, 2]


def test_one_place_is_tvm_s_own_function() -> None:
    before = measure._timed_eval_func
    with several_places(1):
        assert measure._timed_eval_func is before
    with pytest.raises(ValueError, match="within"), several_places(2):
        assert measure._timed_eval_func is not before
        raise ValueError("within")
    assert measure._timed_eval_func is before


def test_a_tvm_that_does_it_otherwise_is_left_alone(monkeypatch, caplog) -> None:
    def other(inp, build_res):
        return None

    monkeypatch.setattr(measure, "_timed_eval_func", other)
    with caplog.at_level(logging.INFO, logger=buffer_offsets.__name__), several_places(3):
        assert measure._timed_eval_func is other
    assert "one set of buffers" in caplog.text


def answer(entry, program, *, places: int = 3, enough: float = 10.0):
    values = [None] * len(program.args)
    return timed(places, 5, enough, "", "", entry.serialize(), program, values, 1, 1, 0, 0.0, True, 0, 0)


def test_a_slow_program_is_timed_on_one_place(matmul) -> None:
    inputs, programs = built(matmul, 2)
    costs, error, text, seconds, _ = answer(inputs[0], programs[0], enough=0.0)
    assert (len(costs), error, text) == (1, 0, None)
    assert seconds > programs[0].time_cost
    assert len(answer(inputs[1], programs[1])[0]) == 3


def test_what_fails_is_a_record_with_an_error(matmul, tmp_path) -> None:
    (entry,), (program,) = built(matmul, 1)
    # a library that is none
    with open(program.filename, "wb") as stream:
        stream.write(b"no library")
    costs, error, text, *_ = answer(entry, program)
    assert costs == (measure.MAX_FLOAT,)
    assert error == measure.MeasureErrorNo.COMPILE_DEVICE
    assert "Traceback" in text or "Error" in text
    # arguments that are not the program's
    (entry,), (program,) = built(matmul, 1)
    values = [np.zeros(3, "float32")] * len(program.args)
    costs, error, *_ = timed(3, 5, 1.0, "", "", entry.serialize(), program, values, 1, 1, 0, 0.0, True, 0, 0)
    assert costs == (measure.MAX_FLOAT,)
    assert error == measure.MeasureErrorNo.RUNTIME_DEVICE


def test_the_gaps_of_a_place_are_the_same_each_time_and_others_elsewhere() -> None:
    shapes = [nd.empty((4, 4)), nd.empty((2,), "int32")]
    given = [None, np.array([7, 8], "int32")]

    def gaps(place: int) -> list[int]:
        return [0 if gap is None else gap.shape[0] for gap in buffers(place, given, shapes, nd.cpu())[::2]]

    assert gaps(0) == [0, 0]
    assert gaps(1) == gaps(1) != gaps(2)
    assert all(MIB / 16 <= gap <= 4 * MIB for gap in gaps(1) + gaps(2))
    first, second = buffers(1, given, shapes, nd.cpu())[1::2]
    assert first.shape == (4, 4) and second.numpy().tolist() == [7, 8]


def test_a_cost_is_the_median_of_calls_and_a_slow_program_has_fewer(matmul, monkeypatch) -> None:
    assert medians((1.0, 7.0, 2.0, 8.0, 9.0, 9.0), 2) == (2.0, 8.0)
    assert [more_calls(5, seconds) for seconds in (0.0, 1e-3, 0.02, 0.03, 1.0)] == [4, 4, 1, 0, 0]
    assert more_calls(1, 1e-3) == 0

    asked = []

    def counted(timings, count):
        asked.append(len(timings))
        return medians(timings, count)

    monkeypatch.setattr(buffer_offsets, "medians", counted)
    inputs, programs = built(matmul, 2)
    entry, program = inputs[0].serialize(), programs[0]
    costs, *_ = timed(
        2, 8, 10.0, "", "", entry, program, [None] * len(program.args), 1, 2, 0, 0.0, True, 0, 0
    )
    assert (len(costs), asked) == (4, [8, 8])  # two timings a place, which share its eight calls
    # without a flush a timing is no single call: TVM's evaluator repeats it
    entry, program = inputs[1].serialize(), programs[1]
    costs, *_ = timed(
        2, 8, 10.0, "", "", entry, program, [None] * len(program.args), 1, 2, 1, 0.0, False, 0, 0
    )
    assert (len(costs), asked) == (4, [8, 8])


def test_beside_a_reference_a_program_has_the_costs_of_all_places_and_its_task_a_reference(
    matmul, tmp_path, monkeypatch
) -> None:
    inputs, programs = built(matmul, 3)
    with several_places(2), kept_workers():
        results = runner().run(inputs, programs, verbose=0)
    assert [(int(result.error_no), len(result.costs)) for result in results] == [(0, 4)] * 3

    inputs, programs = built(matmul, 3)
    found = []
    for entry, program in zip(inputs, programs):
        values = [None] * len(program.args)
        given = (entry.serialize(), program, values, 1, 2, 0, 0.0, True, 0, 0)
        costs, error, *_ = timed(2, 6, 10.0, str(tmp_path), cache_flush.library(), *given)
        found.append(costs)
        assert error == 0 and len(costs) == 4
    assert all(0 < cost < 0.1 for costs in found for cost in costs)
    (place,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    note = json.loads((place / "reference.json").read_text())
    assert note["best"] == pytest.approx(min(sum(costs) / 4 for costs in found))
    assert note["arguments"] == [[[int(n) for n in one.shape], "float32"] for one in programs[0].args]


@pytest.mark.slow
def test_a_runner_that_times_for_long_loses_no_candidate_to_its_limit(matmul) -> None:
    """Twelve sets, as a task's first program has them, would take it ten seconds and more."""
    inputs, programs = built(matmul, 3)
    patient = measure.LocalRunner(timeout=6, repeat=2, min_repeat_ms=400)
    with several_places(3), kept_workers():
        results = patient.run(inputs, programs, verbose=0)
    assert [int(result.error_no) for result in results] == [0, 0, 0]
    assert all(2 <= len(result.costs) <= 6 for result in results)


def test_a_program_with_values_of_its_own_is_timed_by_itself(matmul, tmp_path) -> None:
    (entry,), (program,) = built(matmul, 1)
    values = [np.zeros([int(n) for n in one.shape], "float32") for one in program.args]
    costs, error, *_ = timed(
        2, 5, 10.0, str(tmp_path), "", entry.serialize(), program, values, 1, 1, 0, 0.0, True, 0, 0
    )
    assert (len(costs), error) == (2, 0) and list(tmp_path.iterdir()) == []
