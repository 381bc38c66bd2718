"""A whole model compiled from its tasks' schedules; dense ones too, whose layouts TVM 0.16 cannot rewrite."""

import pytest
from tvm import auto_scheduler

from benchmarks.models import compiled
from benchmarks.tune.measuring import search_task
from wmsched import zoo

pytestmark = pytest.mark.slow

NEO = "gpt-neo-2.7b-attention"


def schedule(row, target):
    """The log line of some schedule of a task, as if measured."""
    task = search_task(row, target)
    params = {"sample_init_min_population": 2, "evolutionary_search_population": 2}
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), params=params, seed=1, verbose=0)
    entry = auto_scheduler.MeasureInput(task, policy.sample_initial_population()[0])
    result = auto_scheduler.MeasureResult([1e-3], 0, "", 0.1, 0.0)
    return str(auto_scheduler.measure_record.dump_record_to_string(entry, result)).strip()


def test_every_heavy_function_takes_its_tasks_schedule(target):
    lines = [schedule(row, target) for row in zoo.find(NEO)]
    products = [line for line, row in zip(lines, zoo.find(NEO)) if row["ops"] == "batch_matmul"]
    without = [line for line in lines if line not in products]
    outcome = compiled.measure({"model": NEO, "choices": [lines, without], "rounds": 1})
    whole, part = outcome["entries"]
    assert whole["missed"] == [] and whole["median"] > 0
    assert len(part["missed"]) == 1 and "batch_matmul" in part["missed"][0]
