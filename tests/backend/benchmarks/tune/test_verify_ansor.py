"""A schedule's program is run beside the plain one, and a wrong one is told."""

from __future__ import annotations

import json

import numpy as np
from spoilt import SPOILT, line
from tvm import auto_scheduler

from benchmarks.tune import verify_ansor
from benchmarks.tune.remeasure import remeasure
from wmsched.ansor.compute_dag import task_from_row
from wmsched.toolchain.resolve import host_target


def record(row, steps) -> str:
    return line(row, steps, 1, host_target())


def test_a_right_schedule_passes_and_one_that_leaves_work_out_does_not(pointwise, monkeypatch) -> None:
    task = task_from_row(pointwise, target=host_target())
    verifier = verify_ansor.Verifier(task)
    entry, _ = auto_scheduler.measure_record.load_record_from_string(record(pointwise, SPOILT))
    assert verifier.error(entry.state) < 1e-5

    run = verifier._run

    def leaves_rows_out(schedule, arguments):
        (output,) = run(schedule, arguments)
        output[:, 1::7] = 0.0
        return [output]

    monkeypatch.setattr(verifier, "_run", leaves_rows_out)
    assert verifier.error(entry.state) > 0.1


def test_what_is_not_finite_is_wrong() -> None:
    one = np.ones(3)
    assert verify_ansor.difference(np.array([1.0, np.nan, 1.0]), one) == np.inf
    assert verify_ansor.difference(one, np.array([1.0, np.inf, 1.0])) == 0.0  # nothing to compare there
    assert verify_ansor.difference(np.array([1.0, 1.0, 1.5]), one) == 0.5


def test_the_second_measurement_reports_no_time_of_a_wrong_program(pointwise, monkeypatch) -> None:
    spec = {"row": pointwise, "target": host_target(), "records": [record(pointwise, SPOILT)], "rounds": 1}
    (entry,) = remeasure(spec)["entries"]
    assert entry["median"] > 0
    monkeypatch.setattr(verify_ansor.Verifier, "error", lambda self, state: 0.5)
    (entry,) = remeasure(json.loads(json.dumps(spec)))["entries"]
    assert "computes something else" in entry["error"] and "median" not in entry
