"""Every task of the benchmark can be tuned: AutoScheduler finds at least one sketch for it."""

import pytest
from tvm import auto_scheduler

from benchmarks.tune.measuring import search_task
from wmsched import zoo


@pytest.mark.parametrize("model", zoo.models())
def test_every_task_of_a_model_has_a_sketch(model, target):
    for row in zoo.find(model):
        policy = auto_scheduler.SketchPolicy(
            search_task(row, target), auto_scheduler.RandomModel(), verbose=0
        )
        assert len(policy.generate_sketches()) > 0, row["name"]
