"""`tune_tir`, `tune_relax`, what compiles with them, and the pipeline: a script with its import changed."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time

import numpy as np
import programs as P
import pytest
import tvm
from tvm import relax
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import PyRunner
from tvm.target import Target

from data_builder.metaschedule.programs import Program
from wmsched.base.errors import UnknownName, WmschedError
from wmsched.base.files import locked
from wmsched.codegen import register
from wmsched.metaschedule import defaults, tune
from wmsched.metaschedule import tasks as task_list
from wmsched.metaschedule.defaults import with_defaults
from wmsched.metaschedule.measure.runner import checked
from wmsched.metaschedule.tune import compile_relax, compile_tir, static_shape_tuning_pipeline
from wmsched.schedules.database import SETTINGS_FILE
from wmsched.toolchain import host_cpu
from wmsched.toolchain.targets import meta_host_target

CALLED = re.compile(r"\bcall\b.*@(exp|tanh)f?\b|\bcall\b.*@llvm\.exp\.")


def tune_tir(*given, **options):
    P.fresh_loggers()
    return tune.tune_tir(*given, **options)


def tune_relax(*given, **options):
    P.fresh_loggers()
    return tune.tune_relax(*given, **options)


@pytest.fixture(scope="module")
def host() -> Target:
    return Target(meta_host_target())


def records(folder) -> list[list]:
    return [json.loads(line) for line in (folder / "database_tuning_record.json").read_text().splitlines()]


def source(module, target) -> str:
    """LLVM's text, without the addresses that are in the names of its metadata."""
    return re.sub(r"0x[0-9a-f]+", "", tvm.compile(module, target).mod.inspect_source("ll"))


def test_a_function_is_tuned_and_built_as_its_candidates_were(tmp_path, host) -> None:
    func = P.softmax()
    database = tune_tir(func, host, tmp_path, 6, seed=1)
    assert len(records(tmp_path)) == 6
    best = compile_tir(database, func, host)
    assert not CALLED.search(source(best.mod, host))
    assert CALLED.search(source(compile_tir(database, func, host, vector_math=False).mod, host))
    x = np.random.default_rng(0).normal(size=(32, 64)).astype("float32")
    out = tvm.runtime.tensor(np.zeros_like(x))
    tvm.compile(best.mod, host)["main"](tvm.runtime.tensor(x), out)
    wanted = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5)


def test_a_function_that_is_marked_is_built_as_under_the_setting(host) -> None:
    module = tvm.IRModule({"main": P.softmax()})
    with tvm.transform.PassContext(config=register.CONFIG):
        wanted = source(module, host)
    assert source(register.with_vector_math(module), host) == wanted != source(module, host)
    both = tvm.IRModule({"plain": P.softmax().with_attr("global_symbol", "plain")})
    both.update(
        register.with_vector_math(tvm.IRModule({"ours": P.softmax().with_attr("global_symbol", "ours")}))
    )
    assert CALLED.search(source(both, host))  # the other one's: each is built as it is marked


def test_nothing_is_found_for_what_was_not_tuned(host) -> None:
    assert compile_tir(ms.database.MemoryDatabase(), P.softmax(), host) is None


def test_what_is_named_is_taken_and_a_run_goes_on(tmp_path) -> None:
    named = {"builder": P.NoBuilder(), "runner": P.NoRunner(), "seed": 1}
    tune_tir(P.matmul(), P.CPU, tmp_path, 8, **named)
    before = records(tmp_path)
    assert len(before) == 8
    tune_tir(P.matmul(), P.CPU, tmp_path, 8, **named)
    traces = [json.dumps(line[1][0]) for line in records(tmp_path)]
    assert len(set(traces)) == len(traces) == 16
    tune_tir(P.matmul(), P.CPU, tmp_path / "random", 4, cost_model="random", **named)
    assert len(records(tmp_path / "random")) == 4


@derived_object
class Pressed(PyRunner):
    """A user who presses Ctrl-C while the first candidate is timed."""

    def run(self, runner_inputs):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        return []


def test_ctrl_c_ends_a_run_and_is_no_candidate_s_failure(tmp_path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        tune_tir(P.matmul(), P.CPU, tmp_path, 8, builder=P.NoBuilder(), runner=checked(Pressed()))
    assert records(tmp_path) == [] and signal.getsignal(signal.SIGINT) is before


def test_a_folder_is_one_run_s_and_what_a_killed_one_left_is_cut(tmp_path, caplog) -> None:
    named = {"builder": P.NoBuilder(), "runner": P.NoRunner(), "seed": 1}
    tune_tir(P.matmul(), P.CPU, tmp_path, 4, **named)
    with (tmp_path / "database_tuning_record.json").open("a") as file:
        file.write("[0, [[], [1")
    with caplog.at_level(logging.WARNING, "wmsched"):
        tune_tir(P.matmul(), P.CPU, tmp_path, 4, **named)
    assert "cut off 11 bytes of a line that was never finished" in caplog.text
    assert len(records(tmp_path)) == 8
    with (
        locked(tmp_path / ".lock", whose=tmp_path, option="--out"),
        pytest.raises(WmschedError, match="work_dir"),
    ):
        tune_tir(P.matmul(), P.CPU, tmp_path, 4, **named)
    tune_tir(P.matmul(), P.CPU, tmp_path, 4, database=ms.database.MemoryDatabase(), **named)


def test_records_that_were_measured_otherwise_are_told_of(tmp_path, caplog) -> None:
    named = {"builder": P.NoBuilder(), "runner": P.NoRunner(), "seed": 1}
    said = []
    with caplog.at_level(logging.WARNING, "wmsched"):
        for change in (None, None, "threads", "remove"):
            note = tmp_path / SETTINGS_FILE
            if change == "threads":
                note.write_text(json.dumps(json.loads(note.read_text()) | {"threads": 64}))
            elif change == "remove":
                note.unlink()
            tune_tir(P.matmul(), P.CPU, tmp_path, 2, **named)
            said.append("cannot be compared" in caplog.text)
    assert said == [False, False, True, True]
    assert "threads=64, and this run measures with" in caplog.text and "by another tool" in caplog.text


def test_what_failed_before_is_not_proposed_again(tmp_path) -> None:
    named = {"runner": P.NoRunner(), "seed": 1}
    for _ in range(2):
        tune_tir(P.matmul(), P.CPU, tmp_path, 8, builder=P.NoBuilder(every=2), **named)
    lines = records(tmp_path)
    assert sum(times == [1e10] for _, (_, times, _, _) in lines) == 8
    assert len({json.dumps(line[1][0]) for line in lines}) == 16


def test_builders_are_as_many_as_the_call_names(host, monkeypatch) -> None:
    made = []
    monkeypatch.setattr(defaults, "KeptBuilder", lambda **how: made.append(how["max_workers"]))
    given = {"online": False, "vector_math": None, "cold_caches": False}
    for cores in (1, 3, "logical"):
        with_defaults(host, {"num_tuning_cores": cores, "runner": P.NoRunner()}, 4, **given)
    assert made == [1, 3, os.cpu_count()]


def test_functions_are_one_task_where_the_user_calls_them_equal(tmp_path) -> None:
    """As `ignore-tensor` does functions that differ in what a constant holds."""
    heard = []
    original = task_list.tasks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_list, "tasks", lambda *a: heard.append(a[2]) or original(*a))
        module, weights = network()
        params = {name: tvm.runtime.tensor(value) for name, value in weights.items()}
        named = {"builder": P.NoBuilder(), "runner": P.NoRunner(), "module_equality": "ignore-tensor"}
        tune_relax(module, params, P.CPU, tmp_path, 3, **named)
    assert heard == ["ignore-tensor"]


def test_the_search_is_the_models(tmp_path, monkeypatch) -> None:
    """TVM's evolutionary search is not asked."""
    monkeypatch.setattr(
        "wmsched.metaschedule.defaults.search_for", lambda *a, **k: pytest.fail("TVM's search took over")
    )
    tune_tir(P.matmul(), P.CPU, tmp_path, 4, builder=P.NoBuilder(), runner=P.NoRunner())
    assert len(records(tmp_path)) == 4


def test_on_a_gpu_it_has_the_gpus_bundle_and_our_spaces(tmp_path, monkeypatch) -> None:
    """A layer of one row, whose sums go over the threads of a block."""
    named = []
    original = defaults.default_cost_model

    def default_cost_model(kind, tell):
        named.append(original(kind, tell))
        return named[-1]

    monkeypatch.setattr(defaults, "default_cost_model", default_cost_model)
    mod = Program("", "a dense layer", ("dense_nt_add", (1, 1024, 1000))).module()
    tune_tir(mod, P.GPUS["RTX 4090"], tmp_path, 4, builder=P.NoBuilder(), runner=P.NoRunner(), seed=1)
    lines = records(tmp_path)
    assert len(lines) == 4 and all('"RFactor"' in json.dumps(line) for line in lines)
    assert named == ["cuda-meta"]


def test_an_unknown_bundle_is_refused(tmp_path, host) -> None:
    with pytest.raises(UnknownName, match="no-such"):
        tune_tir(P.matmul(), host, tmp_path, 4, cost_model="no-such")


def test_a_target_without_cores_is_refused(tmp_path) -> None:
    with pytest.raises(WmschedError, match=r'does not say how many cores.*add "num-cores"'):
        tune_tir(P.matmul(), {"kind": "llvm", "mcpu": "znver4"}, tmp_path, 4)


def test_a_target_whose_programs_would_crash_here_is_told(tmp_path, caplog, monkeypatch) -> None:
    monkeypatch.setattr(host_cpu, "read_cpuinfo", lambda path: ("", frozenset({"sse2"})))
    given = {"online": False, "vector_math": None, "cold_caches": False}
    named = {"builder": P.NoBuilder()}
    with_defaults(
        Target(P.CPU), named | {"runner": P.NoRunner()}, 4, **given
    )  # another machine's, for all we know
    assert "has not" not in caplog.text
    with_defaults(Target(P.CPU), named, 4, **given)
    assert "use avx, avx2, fma" in caplog.text and "which this machine's processor has not" in caplog.text


def network():
    """Two dense layers, a tanh between them and a softmax at the end, and their weights."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(64, 64)).astype("float32") / 8 for name in ("a", "b")}
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 64), "float32"))
    w = [relax.Var(name, relax.TensorType((64, 64), "float32")) for name in weights]
    with builder.function("main", [x, *w]):
        with builder.dataflow():
            y = builder.emit(relax.op.tanh(relax.op.matmul(x, w[0])))
            out = builder.emit_output(relax.op.nn.softmax(relax.op.matmul(y, w[1])))
        builder.emit_func_output(out)
    return builder.get(), weights


def answer(x, weights) -> np.ndarray:
    z = np.tanh(x @ weights["a"]) @ weights["b"]
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


X = np.random.default_rng(1).normal(size=(16, 64)).astype("float32")


def test_a_relax_program(tmp_path, host) -> None:
    module, weights = network()
    params = {name: tvm.runtime.tensor(value) for name, value in weights.items()}
    database = tune_relax(module, params, host, tmp_path, 8, seed=1, num_tuning_cores=1)
    lines = records(tmp_path)
    assert len(lines) >= 8
    assert {line[0] for line in lines} == set(range(len({line[0] for line in lines})))
    assert any("TransformLayout" in json.dumps(line) for line in lines)  # of a weight
    executable = compile_relax(database, module, host, params)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(X))
    np.testing.assert_allclose(found.numpy(), answer(X, weights), rtol=1e-4, atol=1e-6)


def test_each_task_has_its_share_of_few_trials(tmp_path) -> None:
    module, weights = network()
    params = {name: tvm.runtime.tensor(value) for name, value in weights.items()}
    named = {"builder": P.NoBuilder(), "runner": P.NoRunner(), "seed": 1}
    tune_relax(module, params, P.CPU, tmp_path, 6, **named)
    assert len({line[0] for line in records(tmp_path)}) == 3
    tune_relax(module, params, P.CPU, tmp_path / "one", 2, op_names=["softmax"], **named)
    assert len({line[0] for line in records(tmp_path / "one")}) == 1
    with pytest.raises(WmschedError, match=r"no task is called so.*softmax"):
        tune_relax(module, params, P.CPU, tmp_path, 2, op_names=["conv"], **named)


@pytest.mark.parametrize("packed", [False, True])
def test_the_pipeline(tmp_path, host, packed) -> None:
    module, weights = network()
    if packed:
        module["main"] = module["main"].with_attr("num_input", 1)
    made_up = {"builder": P.NoBuilder(), "runner": P.NoRunner(), "vector_math": True}
    pipeline = static_shape_tuning_pipeline(6, host, tmp_path, cpu_weight_prepack=packed, **made_up)
    P.fresh_loggers()
    found = pipeline(module)
    executable = tvm.compile(found, target=host)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    given = [tvm.runtime.tensor(value) for value in weights.values()]
    if packed:
        given = machine["main_transform_params"](given)
    out = machine["main"](tvm.runtime.tensor(X), *given)
    np.testing.assert_allclose(out.numpy(), answer(X, weights), rtol=1e-4, atol=1e-6)
    assert len(records(tmp_path)) >= 6
    assert not CALLED.search(tvm.compile(found, target=host).mod.imports[0].inspect_source("ll"))
