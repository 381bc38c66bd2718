"""A model through Relay, as a user's script tunes and builds it: tasks, search, log, build, right result."""

import json
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import tvm
from tvm import auto_scheduler, relay, topi
from tvm.contrib import graph_executor

from wmsched.ansor import dense_layout
from wmsched.ansor.compute_dag import NO_REWRITE, PRE_TRANSFORMED, workload_from_task
from wmsched.ansor.relay import buildable
from wmsched.ansor.task_scheduler import ApplyHistoryBest, TaskScheduler
from wmsched.base.errors import UnknownName
from wmsched.schedules.log_file import tally

SMALL = {
    "evolutionary_search_population": 8,
    "evolutionary_search_num_iters": 1,
    "sample_init_min_population": 4,
}
ROWS, INNER, COLUMNS = 8, 64, 32
UPSTREAMS = auto_scheduler.extract_tasks.__wrapped__


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


@pytest.fixture
def upstreams(monkeypatch) -> Iterator[None]:
    """TVM's own product, as in a process that never imported us."""
    dense_layout.mend()
    module = sys.modules["tvm.topi.nn.dense"]
    own = module.matmul.__wrapped__
    with monkeypatch.context() as patched:
        patched.setattr(module, "matmul", own)
        patched.setattr(topi.nn, "matmul", own)
        relay.backend.te_compiler.get().clear()
        yield
    relay.backend.te_compiler.get().clear()


def extracted(layer, target, extract=auto_scheduler.extract_tasks) -> auto_scheduler.SearchTask:
    module, params, *_ = layer
    (task,), _ = extract(module["main"], params, tvm.target.Target(target))
    assert "dense" in task.desc
    return task


def tuned(task: auto_scheduler.SearchTask, log) -> None:
    scheduler = TaskScheduler([task], [1], callbacks=[], cost_model="x86-avx512", seed=1)
    how = auto_scheduler.TuningOptions(
        num_measure_trials=4, measure_callbacks=[auto_scheduler.RecordToFile(str(log))], verbose=0
    )
    scheduler.tune(how, search_policy_params=dict(SMALL))
    told = tally(log)
    assert told.total == 4 and len(told.best) == 1  # upstream's: four failed builds
    assert all(record.measurement.seconds > 0 for record in told.best.values())


def built(layer, target, log) -> dict:
    """The graph of the model built with a log's schedules, after it has given the right result."""
    module, params, data, expected = layer
    config = {"relay.backend.use_auto_scheduler": True}
    with ApplyHistoryBest(str(log)) as history, tvm.transform.PassContext(opt_level=3, config=config):
        library = relay.build(module, target=target, params=params)
    assert history.missed == []
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=data)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4)
    return json.loads(library.get_graph_json())


@pytest.mark.parametrize("constructs", [True, False], ids=["constructed", "plain"])
def test_what_a_log_lacks_is_constructed(layer, target, constructs, caplog) -> None:
    """Without a log: no measurement, right results, and weights laid out for the schedule."""
    module, params, data, expected = layer
    config = {"relay.backend.use_auto_scheduler": True}
    relay.backend.te_compiler.get().clear()
    history = ApplyHistoryBest([], construct="x86-avx512" if constructs else None)
    with history, tvm.transform.PassContext(opt_level=3, config=config):
        library = relay.build(module, target=target, params=params)
    assert (len(history.constructed), len(history.missed)) == ((1, 0) if constructs else (0, 1))
    assert "no constructed schedule" not in caplog.text
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=data)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4)
    graph = json.loads(library.get_graph_json())
    weights = [tuple(shape) for shape in graph["attrs"]["shape"][1] if np.prod(shape) == COLUMNS * INNER]
    assert any(len(shape) > 2 for shape in weights) == constructs


def test_an_unknown_bundle_is_named() -> None:
    with pytest.raises(UnknownName, match="no-such-bundle"):
        ApplyHistoryBest([], construct="no-such-bundle")


def test_a_dense_layer_is_tuned_and_built_with_its_weights_laid_out_anew(layer, target, tmp_path) -> None:
    task = extracted(layer, target)
    assert buildable(task) is task and task.layout_rewrite_option == PRE_TRANSFORMED
    tuned(task, tmp_path / "log.json")
    graph = built(layer, target, tmp_path / "log.json")
    # as `wmsched tune` tells how to build one task: with weights as they are
    schedule, tensors = task.apply_best(str(tmp_path / "log.json"), layout_rewrite_option=1)
    _, params, data, expected = layer
    arrays = (data, params["w"].numpy(), params["b"].numpy(), np.zeros_like(expected))
    given = [tvm.nd.array(a.reshape([int(n) for n in t.shape])) for a, t in zip(arrays, tensors, strict=True)]
    tvm.build(schedule, tensors, task.target)(*given)
    np.testing.assert_allclose(given[-1].numpy(), expected, rtol=1e-4)
    (shape,) = {
        tuple(shape)
        for node, shape in zip(graph["nodes"], graph["attrs"]["shape"][1], strict=True)
        if node["op"] == "null" and np.prod(shape) == COLUMNS * INNER
    }
    assert len(shape) > 2  # outputs and inputs, split as the schedule's loops are


@pytest.mark.slow
def test_a_log_from_before_is_built_as_it_was_measured(upstreams, layer, target, tmp_path) -> None:
    task = extracted(layer, target, UPSTREAMS)
    assert buildable(task).layout_rewrite_option == NO_REWRITE
    tuned(task, tmp_path / "log.json")
    relay.backend.te_compiler.get().clear()
    graph = built(layer, target, tmp_path / "log.json")
    assert [COLUMNS, INNER] in graph["attrs"]["shape"][1]


def test_the_key_upstream_gives(upstreams, layer, target) -> None:
    theirs = extracted(layer, target, UPSTREAMS).workload_key
    relay.backend.te_compiler.get().clear()
    ours = extracted(layer, target)
    assert ours.workload_key != theirs
    assert dense_layout.upstream_key(ours.compute_dag) == theirs


@pytest.mark.parametrize("transposed", [(a, b) for a in (False, True) for b in (False, True)])
def test_products_are_upstreams(transposed, target) -> None:
    """Every way of transposing, in more than two dimensions and with a bias, gives numpy's numbers."""
    dense_layout.mend()
    rng = np.random.default_rng(1)
    for outer in ((), (3,)):
        a, b = rng.random((*outer, 4, 5), dtype="float32"), rng.random((*outer, 5, 6), dtype="float32")
        given = [x.swapaxes(-1, -2).copy() if t else x for x, t in zip((a, b), transposed, strict=True)]
        bias = rng.random(6, dtype="float32")
        tensors = [tvm.te.placeholder(x.shape, name=n) for x, n in zip((*given, bias), "abc", strict=True)]
        out = topi.nn.matmul(
            *tensors[:2], bias=tensors[2], transpose_a=transposed[0], transpose_b=transposed[1]
        )
        function = tvm.build(tvm.te.create_schedule(out.op), [*tensors, out], target)
        result = tvm.nd.array(np.zeros((*outer, 4, 6), "float32"))
        function(*(tvm.nd.array(x) for x in (*given, bias)), result)
        np.testing.assert_allclose(result.numpy(), a @ b + bias, rtol=1e-5)


def test_inner_dimensions_must_agree() -> None:
    dense_layout.mend()
    a, b = tvm.te.placeholder((4, 5), name="a"), tvm.te.placeholder((6, 7), name="b")
    with pytest.raises(ValueError, match="5, the weight's 7"):
        topi.nn.dense(a, b)


def test_gathers_that_rewriting_removes_are_not_counted(layer, target) -> None:
    """A dense layer's weight is read along the outputs with stride 1 where it is laid out anew."""
    task = extracted(layer, target)
    kept = auto_scheduler.SearchTask(
        compute_dag=task.compute_dag,
        workload_key=task.workload_key,
        target=task.target,
        layout_rewrite_option=NO_REWRITE,
    )
    reads = {}
    for name, each in (("rewritten", task), ("kept", kept)):
        (product,) = (s for s in workload_from_task(each).stages if s.name == "T_matmul_NT")
        reads[name] = [(access.dims, access.shape) for access in product.reads]
    rows, columns, inner = (((n, 1),) for n in range(3))
    assert reads["kept"] == [((rows, inner), (ROWS, INNER)), ((columns, inner), (COLUMNS, INNER))]
    assert reads["rewritten"] == [((rows, inner), (ROWS, INNER)), ((inner, columns), (INNER, COLUMNS))]


def test_other_tasks_stay_as_they_are(matmul) -> None:
    assert buildable(matmul) is matmul
