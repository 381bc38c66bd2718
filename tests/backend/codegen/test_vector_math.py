"""exp, tanh and the like in vectors in AutoScheduler's builds: how exact, where in force, in a search."""

from __future__ import annotations

import re
import tarfile

import numpy as np
import pytest
import tvm
from ansor_options import SMALL, options
from tvm import auto_scheduler, relay, te, tir
from tvm.auto_scheduler import RandomModel, SketchPolicy, measure
from vector_functions import EXACT, NESTED, POWERS, SPECIAL, check_special, most_off, numbers

from benchmarks.tune import remeasure
from wmsched import zoo
from wmsched.ansor.codegen import builders_with_vector_math
from wmsched.ansor.task_scheduler import ApplyHistoryBest, TaskScheduler, vector_math

LANES = 16
CALLED = re.compile(r"@(?:llvm\.)?(exp|log|erf|tanh|pow)f?[.(]")


def power(exponent: float):
    return lambda x: tir.power(x, tir.const(exponent, "float32"))


FUNCTIONS = {name: power(POWERS[name]) if name in POWERS else getattr(tir, name) for name in EXACT}


def compiled(function, n: int, target, dtype: str = "float32"):
    a = te.placeholder((n,), dtype, name="a")
    b = te.compute((n,), lambda i: function(a[i]), name="b")
    schedule = te.create_schedule(b.op)
    _, inner = schedule[b].split(b.op.axis[0], LANES)
    schedule[b].vectorize(inner)
    return tvm.build(schedule, [a, b], target)


def run(function, x: np.ndarray) -> np.ndarray:
    out = tvm.nd.array(np.zeros_like(x))
    function(tvm.nd.array(x), out)
    return out.numpy()


def calls(function) -> bool:
    return bool(CALLED.search(function.get_source("ll")))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_as_exact_as_said_and_call_nothing(name, target):
    x = numbers()
    with vector_math():
        function = compiled(FUNCTIONS[name], len(x), target)
    assert not calls(function)
    assert most_off(name, x, run(function, x)) <= EXACT[name][1]


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_special_values_are_those_of_c(name, target):
    with vector_math():
        check_special(name, run(compiled(FUNCTIONS[name], len(SPECIAL), target), SPECIAL))


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "log", "sigmoid", "cube"])
def test_outside_it_is_as_tvm_has_it(name, target):
    def called() -> bool:
        return calls(compiled(FUNCTIONS[name], LANES, target))

    with vector_math():
        assert not called()
        with vector_math(False):
            assert called()
        assert not called()
    assert called()
    with pytest.raises(ValueError, match="within"), vector_math():
        raise ValueError("within")
    assert called()


def test_float64_is_left_to_tvm(target):
    x = np.linspace(-3, 3, 64)
    with vector_math():
        function = compiled(tir.exp, 64, target, "float64")
    assert calls(function)
    np.testing.assert_allclose(run(function, x), np.exp(x), rtol=1e-14)


@pytest.mark.parametrize("name", NESTED)
def test_functions_of_functions(name, target):
    """Compiled in vectors they would take a second, hours, half a second each, and more than a minute."""
    function, exact = NESTED[name]
    with vector_math():
        built = compiled(lambda x: function(tir, x), 64, target)
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    np.testing.assert_allclose(run(built, x), exact(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
    assert calls(built) == (name in ("mish", "exp thrice"))


@pytest.fixture
def gelu(target):
    def ansor_math_gelu(rows: int, columns: int):  # of no module, so that it goes to the builders as code
        x = te.placeholder((rows, columns), name="x")
        half, root = tir.const(0.5, "float32"), tir.const(0.5**0.5, "float32")
        one = tir.const(1.0, "float32")
        shape = (rows, columns)
        return [x, te.compute(shape, lambda i, j: half * x[i, j] * (one + tir.erf(root * x[i, j])), name="y")]

    auto_scheduler.register_workload(ansor_math_gelu, override=True)
    return auto_scheduler.SearchTask(func=ansor_math_gelu, args=(8, 64), target=tvm.target.Target(target))


def objects_call_erf(task) -> set[bool]:
    """Of candidates as the local builder makes them: whether the object files name `erff`."""
    policy = SketchPolicy(task, RandomModel(), params=dict(SMALL), seed=3, verbose=0)
    inputs = [measure.MeasureInput(task, state) for state in policy.sample_initial_population()]
    found = set()
    for program in measure.LocalBuilder(timeout=30, n_parallel=1).build(inputs, verbose=0):
        assert int(program.error_no) == 0, program.error_msg
        with tarfile.open(program.filename) as archive:
            files = [archive.extractfile(name) for name in archive.getnames() if name.endswith(".o")]
            found.add(any(file is not None and b"erff" in file.read() for file in files))
    return found


def test_local_builders_compile_so_within_and_as_before_after(gelu):
    original = measure.local_build_worker
    with builders_with_vector_math():
        assert objects_call_erf(gelu) == {False}
    assert measure.local_build_worker is original
    assert objects_call_erf(gelu) == {True}
    with builders_with_vector_math(False):
        assert measure.local_build_worker is original


def test_builders_of_a_tvm_that_does_it_otherwise_are_left_alone(monkeypatch, caplog):
    monkeypatch.delattr(measure, "local_build_worker")
    with caplog.at_level("INFO", logger="wmsched.ansor.codegen"), builders_with_vector_math():
        assert not hasattr(measure, "local_build_worker")
    assert "call the C library" in caplog.text


def test_a_scheduler_with_a_world_model_has_it_unless_told_otherwise(matmul):
    def chosen(**more) -> bool:
        return TaskScheduler([matmul], callbacks=[], **more).vector_math

    assert chosen(cost_model="x86-avx512")
    assert not chosen(cost_model="x86-avx512", vector_math=False)
    assert not chosen() and not chosen(cost_model=RandomModel())
    assert chosen(vector_math=True)


def test_a_schedule_is_measured_again_as_its_search_compiled_it(target, monkeypatch):
    """The benchmark's second measurement: the same record, found with the C library and in vectors."""
    monkeypatch.setattr(
        remeasure, "timer", lambda *given: (lambda seconds: lambda: seconds)(float(called_here(target)))
    )
    (row,) = zoo.find("gpt2/8")
    spec = {"row": row, "target": target, "records": ["a", "a", "b"], "rounds": 1}
    found = remeasure.remeasure(spec | {"vector_math": [False, True, False]})["entries"]
    assert [entry["median"] for entry in found] == [1.0, 0.0, 1.0]
    assert [entry["median"] for entry in remeasure.remeasure(spec)["entries"]] == [1.0, 1.0, 1.0]


def called_here(target) -> bool:
    return calls(compiled(tir.exp, LANES, target))


def test_what_a_scheduler_tuned_is_built_so_by_apply_history_best(target, tmp_path):
    rng = np.random.default_rng(0)
    data, weight = rng.standard_normal((8, 32), "float32"), rng.standard_normal((64, 32), "float32")
    x, w = relay.var("x", shape=data.shape), relay.var("w", shape=weight.shape)
    module = tvm.IRModule.from_expr(relay.Function([x, w], relay.tanh(relay.nn.dense(x, w))))
    params = {"w": tvm.nd.array(weight)}
    tasks, weights = auto_scheduler.extract_tasks(module["main"], params, tvm.target.Target(target))
    log = tmp_path / "log.json"
    scheduler = TaskScheduler(tasks, weights, callbacks=[], cost_model="x86-avx512", seed=1)
    scheduler.tune(options(log, 4), search_policy_params=dict(SMALL))

    def library(**more):
        config = {"relay.backend.use_auto_scheduler": True}
        with (
            ApplyHistoryBest(str(log), **more) as history,
            tvm.transform.PassContext(opt_level=3, config=config),
        ):
            built = relay.build(module, target=target, params=params)
        assert history.missed == []
        return built

    ours, plain = library(), library(vector_math=False)
    assert not calls(ours.get_lib()) and calls(plain.get_lib())
    executor = tvm.contrib.graph_executor.GraphModule(ours["default"](tvm.cpu()))
    executor.run(x=data)
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.tanh(data @ weight.T), atol=1e-5)
