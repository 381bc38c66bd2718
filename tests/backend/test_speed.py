"""What a prediction costs: candidates a second of ours and of the stock XGBModel, on the same states.

Run with ``pytest -m slow tests/backend/test_speed.py``; pytest-benchmark prints the table.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from stand_in import StandIn
from tvm import auto_scheduler

from wmsched.backends.auto_scheduler import WorldModelCostModel
from wmsched.errors import WmschedError

pytestmark = pytest.mark.slow

ROUNDS = 5


@pytest.fixture(scope="module")
def conv(target: str):
    """The benchmark's 2d convolution with ReLU, and a thousand schedules of it."""
    from wmsched import zoo
    from wmsched.backends.workload import task_from_row

    task = task_from_row(zoo.find("conv2d-relu")[0], target=target)
    params = {"sample_init_min_population": 1000, "evolutionary_search_population": 1024}
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), params=params, seed=1, verbose=0)
    return task, list(policy.sample_initial_population())[:1000]


def stock(task, states):
    """An XGBModel that has learnt: it features a candidate by lowering it."""
    model = auto_scheduler.XGBModel(verbose_eval=0, num_warmup_sample=1)
    seconds = np.random.default_rng(0).uniform(1e-4, 1e-2, 64)
    model.update(
        [auto_scheduler.MeasureInput(task, state) for state in states[:64]],
        [auto_scheduler.MeasureResult([second], 0, "", 0.1, 0.0) for second in seconds],
    )
    return model


def backend_alone(task, states):
    """Decoding, mapping and bookkeeping with a world model that costs nothing."""
    return WorldModelCostModel(StandIn(lambda steps: float(len(steps))), diversity=1.0)


def ours(task, states):
    try:
        return WorldModelCostModel(os.environ.get("WMSCHED_BUNDLE", "x86-avx512"))
    except WmschedError as error:
        pytest.skip(f"no bundle to time: {error}")


@pytest.mark.parametrize("make", [stock, backend_alone, ours])
def test_candidates_a_second(benchmark, conv, make) -> None:
    task, states = conv
    model = make(task, states)
    model.predict(task, states[:2])  # what is done once a task

    def forget():
        if isinstance(model, WorldModelCostModel):
            model.update([], [])  # or a repetition would only look its scores up

    scores = benchmark.pedantic(model.predict, (task, states), setup=forget, rounds=ROUNDS)
    benchmark.extra_info["candidates a second"] = round(len(states) / benchmark.stats.stats.median)
    assert np.shape(scores) == (len(states),)
    assert len(set(np.asarray(scores).tolist())) > 1  # it did rank them
