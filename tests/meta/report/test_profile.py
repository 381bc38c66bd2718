"""Times of a tuned model's functions inside the model, and what they compute."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from typer.testing import CliRunner

from wmsched.base.cores import unbound
from wmsched.base.errors import WmschedError
from wmsched.cli.main import app
from wmsched.measure import call_times
from wmsched.relax.passes.describe import describe
from wmsched.report import source
from wmsched.report.compare import compare
from wmsched.report.limits import WAITS
from wmsched.report.profiler import inputs_of, profile
from wmsched.report.report import make_report
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune import folder as tuned_folder
from wmsched.tune import latency
from wmsched.tune.tuned_model import TunedModel

SLEEP = 0.004
FUNCTIONS = 4  # of the small net: of its tasks one is a view in the library


@pytest.fixture(scope="module")
def model(tuned):
    return TunedModel(tuned[0])


@pytest.fixture(scope="module")
def found(model, tuned):
    functions, why = source.functions_of(tuned[0])
    assert not why
    return profile(model, seconds=0.3, functions=functions)


def test_functions_are_timed_in_the_model(found) -> None:
    assert len(found.rows) == FUNCTIONS
    assert [row.seconds for row in found.rows] == sorted((row.seconds for row in found.rows), reverse=True)
    assert all(row.calls == 1 and row.seconds > 0 and row.warm > 0 for row in found.rows)
    spent = sum(row.seconds for row in found.rows) + found.machine + found.rest
    assert spent == pytest.approx(found.seconds)
    assert 0 < sum(map(found.share, found.rows)) <= 1
    assert found.spread[0] <= found.measured <= found.spread[1]
    assert found.memory >= 4 * (3 * 256 + 27 * 8 + 8 * 256)


def test_operations_and_bytes_are_those_of_the_shapes(found) -> None:
    rows = {row.what.split(" of ")[0]: row for row in found.rows}
    convolution = rows["3x3 convolution"]
    assert convolution.what.startswith("3x3 convolution of 3 channels to 1 x 16 x 16 x 8, add, multiply,")
    assert convolution.flops == 16 * 16 * 8 * (2 * 27 + 4)
    assert convolution.bytes == 4 * (3 * 256 + 27 * 8 + 3 * 8 + 8 * 256)
    assert convolution.weights == 4 * (27 * 8 + 3 * 8)
    assert rows["product"].what == "product of 1 x 8 by 8 x 10, add"
    assert convolution.gflops == pytest.approx(convolution.flops / convolution.seconds / 1e9)


def test_a_model_is_as_before_once_it_was_timed(model) -> None:
    data = inputs_of(model)
    before = model(*data)
    profile(model, seconds=0.01)
    seen: list[str] = []

    def called(_function, name, *_) -> int:
        seen.append(name)
        return 0

    with model.runs(*data) as run:
        assert run(called) > 0 and seen
        seen.clear()
        run(None)
    assert np.array_equal(model(*data), before) and not seen
    with pytest.raises(TypeError, match="the model takes"), model.runs():
        pass


def test_a_folder_of_before_is_described_from_its_models_file(tuned, tmp_path) -> None:
    written = source.functions_of(tuned[0])[0]
    for name in (tuned_folder.ABOUT, tuned_folder.REPORT):
        (tmp_path / name).write_text((tuned[0] / name).read_text())
    said: list[str] = []
    assert source.functions_of(tmp_path, said.append) == (written, "") and "is read again" in said[0]
    about = json.loads((tmp_path / tuned_folder.ABOUT).read_text())
    (tmp_path / tuned_folder.ABOUT).write_text(json.dumps(about | {"hash": "0"}))
    assert "another model by now" in source.functions_of(tmp_path)[1]


@pytest.fixture(params=["compiled", "Python"])
def timer(request) -> call_times.Clock:
    return call_times.clock() if request.param == "compiled" else call_times.Clock()


def sleeping_machine() -> relax.VirtualMachine:
    """A model of two functions: one sleeps, the other one doubles a number."""

    @tvm.register_global_func("test.sleep", override=True)
    def sleep(*_) -> None:
        time.sleep(SLEEP)

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((64,), "float32"))
    with builder.function("main", [x]):
        slept = builder.emit(relax.call_dps_packed("test.sleep", (x,), relax.TensorType((64,), "float32")))
        builder.emit_func_output(builder.emit(relax.op.multiply(slept, x)))
    return relax.VirtualMachine(tvm.compile(builder.get(), tvm.target.Target(meta_host_target())), tvm.cpu())


def test_a_clock_tells_which_call_took_how_long(timer) -> None:
    machine = sleeping_machine()
    with unbound():
        machine["main"](tvm.runtime.tensor(np.ones(64, np.float32)))
        machine.set_instrument(timer.instrument)
        for _ in range(2):
            timer.begin(again=True)
            machine["main"](tvm.runtime.tensor(np.ones(64, np.float32)))
    calls = {call.name: call for call in timer.calls()}
    assert SLEEP <= calls["test.sleep"].seconds < 10 * SLEEP
    assert 0 <= calls["multiply"].seconds < SLEEP and 0 < timer.cost < 1e-4
    assert math.isnan(calls["test.sleep"].again)  # TVM's own may not be called twice
    assert math.isnan(calls["multiply"].again) == (type(timer) is call_times.Clock)


def test_without_a_compiler_python_keeps_the_time(monkeypatch, model) -> None:
    monkeypatch.setattr(call_times, "_compiled", lambda: "")
    assert type(call_times.clock()) is call_times.Clock
    waited: list[int] = []  # as for a GPU, before and after each call
    timer = call_times.clock(lambda: waited.append(1))
    with model.runs(*inputs_of(model)) as run:
        timer.begin()
        waited.clear()
        run(timer.instrument)
    assert len(waited) == 2 * len(timer.calls()) > 0
    found = profile(model, seconds=0.05)
    assert len(found.rows) == FUNCTIONS and all(math.isnan(row.warm) for row in found.rows)


def test_what_a_table_is_not_asked_for_is_not_counted() -> None:
    """A look-up reads a few rows of its table."""
    builder = relax.BlockBuilder()
    ids = relax.Var("ids", relax.TensorType((6,), "int64"))
    table = relax.const(np.ones((1000, 16), np.float32))
    with builder.function("main", [ids]):
        builder.emit_func_output(builder.emit(relax.op.take(table, ids, 0)))
    (one,) = describe(relax.transform.LegalizeOps()(builder.get())).values()
    assert one.what == "look-up in a table of 6 x 16"
    assert one.read == 4 * 6 * 16 + 8 * 6 and one.written == 4 * 6 * 16 and one.weights == one.read


def test_a_function_that_cannot_be_read_has_its_name() -> None:
    extern = tirx.PrimFunc([], tirx.Evaluate(tirx.call_extern("int32", "f")))
    (one,) = describe(tvm.IRModule({"sort": extern})).values()
    assert one.what == "sort" and math.isnan(one.read) and math.isnan(one.written) and one.weights == 0


def test_the_command_writes_a_page_and_prints_tables_and_json(tuned, tmp_path) -> None:
    def said(*options: str) -> str:
        ran = CliRunner().invoke(app, ["report", str(tuned[0]), "--seconds", "0.1", *options])
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    path = tmp_path / "page.html"
    text = said("--out", str(path), "--compare")
    assert "3x3 convolution of 3 channels" in text and f"the page: {path}" in text
    page = path.read_text(encoding="utf-8")
    told = json.loads(page.split('id="report">')[1].split("</script>")[0])
    assert len(told["functions"]) == FUNCTIONS and told["machine"]["gflops"] > 1
    assert set(told["compared"]["seconds"]) == {"wmsched", "PyTorch eager"}
    assert {row["limit"]["waits"] for row in told["functions"]} <= set(WAITS) - {"unknown"}
    assert told["search"]["trials"] == 12 and told["then"]["untuned"] > 0
    assert json.loads(said("--json")).keys() == told.keys()
    assert "waits for" in said("--text")


def test_a_folder_without_a_model_is_named(tmp_path) -> None:
    with pytest.raises(WmschedError, match="is no folder of a finished"):
        make_report(tmp_path)


def test_what_cannot_be_compared_is_said(model, monkeypatch) -> None:
    def gone(*_) -> None:
        raise WmschedError("there is no such file")

    monkeypatch.setattr("wmsched.relax.importers.load.load", gone)
    monkeypatch.setattr(latency, "REST", 0.0)
    found = compare(model, lambda _: None, rounds=1)
    assert set(found["seconds"]) == {"wmsched"} and "there is no such file" in found["missing"]["others"]


def test_an_untuned_library_is_described_as_such(tuned, tmp_path) -> None:
    """Where tuning made a model no faster, its library has the functions of TVM's own build."""
    for name in (tuned_folder.ABOUT, tuned_folder.REPORT):
        (tmp_path / name).write_text((tuned[0] / name).read_text())
    report = json.loads((tmp_path / tuned_folder.REPORT).read_text())
    report["library"]["build"] = "untuned"
    (tmp_path / tuned_folder.REPORT).write_text(json.dumps(report))
    functions, why = source.functions_of(tmp_path)
    assert not why and functions.keys() != source.functions_of(tuned[0])[0].keys()
    assert not any("transpose" in one.what for one in functions.values())  # channels are where they were
