"""A model through Relay, as a user's script tunes and builds it: tasks, search, log, build, right result."""

import numpy as np
import pytest
import tvm
from tvm import auto_scheduler, relay
from tvm.contrib import graph_executor

from wmsched.backends.auto_scheduler import ApplyHistoryBest, TaskScheduler
from wmsched.backends.relay_tasks import buildable
from wmsched.tuning_log import tally

SMALL = {
    "evolutionary_search_population": 8,
    "evolutionary_search_num_iters": 1,
    "sample_init_min_population": 4,
}
ROWS, INNER, COLUMNS = 8, 64, 32


@pytest.fixture(scope="module")
def layer():
    """A dense layer with its weights as parameters, and what goes in and comes out."""
    rng = np.random.default_rng(0)
    data, weight, bias = (
        rng.random(s, dtype="float32") for s in ((ROWS, INNER), (COLUMNS, INNER), (COLUMNS,))
    )
    x, w, b = (relay.var(name, shape=a.shape) for name, a in (("x", data), ("w", weight), ("b", bias)))
    function = relay.Function([x, w, b], relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), b)))
    module = tvm.IRModule.from_expr(function)
    return (
        module,
        {"w": tvm.nd.array(weight), "b": tvm.nd.array(bias)},
        data,
        np.maximum(data @ weight.T + bias, 0),
    )


def test_a_dense_layer_is_tuned_and_built(layer, target, tmp_path) -> None:
    module, params, data, expected = layer
    tasks, weights = auto_scheduler.extract_tasks(module["main"], params, tvm.target.Target(target))
    assert len(tasks) == 1 and "dense" in tasks[0].desc
    log = tmp_path / "log.json"
    scheduler = TaskScheduler(tasks, weights, callbacks=[], cost_model="x86-avx512", seed=1)
    how = auto_scheduler.TuningOptions(
        num_measure_trials=4, measure_callbacks=[auto_scheduler.RecordToFile(str(log))], verbose=0
    )
    scheduler.tune(how, search_policy_params=dict(SMALL))
    told = tally(log)
    assert told.total == 4 and len(told.best) == 1  # upstream's: four failed builds
    assert all(record.measurement.seconds > 0 for record in told.best.values())
    config = {"relay.backend.use_auto_scheduler": True}
    with ApplyHistoryBest(str(log)) as history, tvm.transform.PassContext(opt_level=3, config=config):
        library = relay.build(module, target=target, params=params)
    assert history.missed == []
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=data)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4)


def test_other_tasks_stay_as_they_are(matmul) -> None:
    assert buildable(matmul) is matmul
