"""TLP as AutoScheduler's cost model: it orders the candidates as TLP does, and a search runs with it."""

import numpy as np
import orjson
import torch
from tvm import auto_scheduler

from benchmarks.rankers.tlp import sequence
from benchmarks.rankers.tlp.backend import cost_model
from benchmarks.rankers.tlp.fit import Tlp
from benchmarks.rankers.tlp.model import Network, Size


def untrained(steps):
    torch.manual_seed(0)
    names = sequence.vocabulary(steps)
    size = Size(names=len(names), hidden=32)
    return Tlp(Network(size), size, names)


def steps_of(task, state):
    blank = auto_scheduler.MeasureResult([0.0], 0, "", 0.0, 0.0)
    entry = auto_scheduler.MeasureInput(task, state)
    return orjson.loads(str(auto_scheduler.measure_record.dump_record_to_string(entry, blank)))["i"][1][1]


def test_scores_are_positive_and_in_the_models_order(matmul, states):
    steps = [steps_of(matmul, state) for state in states[:60]]
    tlp = untrained(steps)
    model = cost_model(tlp)
    scores = np.asarray(model.predict(matmul, states[:60]))
    assert scores.dtype == np.float32 and (scores > 0).all() and (scores <= 1).all()
    margins = tlp.score(steps)
    order = np.argsort(margins)
    assert (np.diff(scores[order]) >= 0).all() and len(set(scores.tolist())) > 10
    packed = np.asarray(model.predict_stages(matmul, states[:60]))
    np.testing.assert_array_equal(packed, np.concatenate([scores, np.zeros(60)]))


def test_a_search_runs_with_it(matmul, states):
    model = cost_model(untrained([steps_of(matmul, state) for state in states[:20]]))
    params = {"sample_init_min_population": 20, "evolutionary_search_population": 30}
    params |= {"evolutionary_search_num_iters": 1}
    policy = auto_scheduler.SketchPolicy(matmul, model, params=params, seed=1, verbose=0)
    population = policy.sample_initial_population()
    assert len(policy.evolutionary_search(population, 8)) == 8
