"""The models in plain torch are the benchmark's models, and their timing survives what cannot be compiled."""

import json
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.models.pytorch import __main__ as command
from benchmarks.models.pytorch import timing
from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.plan import read
from benchmarks.report import whole
from benchmarks.tune import child
from wmsched import zoo
from wmsched.zoo import torch_models as models

# Published counts; BERT and GPT-2 without the embeddings, ResNet3D-18 with 1000 classes instead of 400.
PARAMETERS = {
    "resnet50": 25_557_032,
    "mobilenetv2": 3_504_872,
    "bert-base": 12 * (4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768),
    "gpt2": 12 * (4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768) + 2 * 768,
    "resnet3d18": 33_371_472 + 600 * 513,
    "opt-1.3b-attention": 4 * (2048 * 2048 + 2048),
    "gpt-neo-2.7b-attention": 4 * 768 * 768 + 768,
}


def operations(row):
    """Floating-point operations of a task; Winograd's as those of the convolution it stands for."""
    if "winograd" not in row["ops"]:
        return max(0.0, row["flop_ct"])
    data, weight, *_, out = json.loads(row["workload_key"])[1:]
    return 2.0 * math.prod(out) * data[-1] * 9 if weight[0] == 6 else math.nan


@pytest.mark.parametrize("name", zoo.models())
def test_a_model_has_its_parameters_and_the_operations_of_its_tasks(name):
    make, shape = models.MODELS[name]
    with torch.device("meta"):  # shapes alone: nothing is computed
        model, data = make().eval(), torch.empty(shape)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        out = model(data)
    assert tuple(out.shape) == ((1, 1000) if len(shape) > 3 else shape)
    expected = sum(row["weight"] * operations(row) for row in zoo.find(name))
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.04)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_one_model_is_timed_and_a_missing_compiler_is_said(monkeypatch, threads):
    monkeypatch.setattr(timing, "compiler", lambda: "")
    monkeypatch.setattr(timing, "MIN_REPEAT_SECONDS", 0.001)
    monkeypatch.setitem(models.MODELS, "small", (lambda: torch.nn.Linear(8, 8), (1, 8)))
    spec = {"model": "small", "executors": ["eager", "compile"], "threads": 1, "rounds": 3}
    entries = timing.measure(spec)["entries"]
    assert entries["eager"]["status"] == "ok" and len(entries["eager"]["seconds"]) == 3
    assert 0 < entries["eager"]["median"] < 0.1
    assert entries["compile"]["status"] == "error" and "C++ compiler" in entries["compile"]["error"]


def test_a_timing_is_the_mean_of_enough_calls(monkeypatch):
    clock = iter([0.0, 0.04, 0.08, 0.12])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    assert timing.once(lambda: None) == pytest.approx(0.04)


def test_the_command_writes_lines_that_the_report_reads_and_does_not_repeat_them(tmp_path, monkeypatch):
    asked = []

    def call(module, spec, *, timeout, output):
        asked.append((spec["model"], spec["threads"], tuple(spec["executors"])))
        eager = {"status": "ok", "seconds": [0.5], "median": 0.5, "spread": 0.0, "warm_seconds": 1.0}
        return {
            "status": "ok",
            "entries": {"eager": eager, "compile": {"status": "error", "error": "no compiler"}},
        }

    monkeypatch.setattr(child, "call", call)
    out = tmp_path / "r.jsonl"
    arguments = ["--models", "gpt2,resnet50", "--threads", "1", "--out", str(out)]
    assert command.main(arguments) == 1  # compile failed
    assert command.main(arguments) == 1
    both, second = ("eager", "compile"), ("compile",)
    assert asked == [("gpt2", 1, both), ("resnet50", 1, both), ("gpt2", 1, second), ("resnet50", 1, second)]
    table = whole.tables(Outcomes(list(read(out))))[0]
    assert ["gpt2", "500.000"] in table.rows and "gpt2, compile: no compiler" in table.note
    assert command.main(["--models", "vgg", "--out", str(out)]) == 2


def test_a_model_that_is_killed_is_a_line_too(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "call", lambda *a, **k: {"status": "timeout", "error": "not finished"})
    out = tmp_path / "r.jsonl"
    assert command.main(["--models", "gpt2", "--threads", "1", "--out", str(out)]) == 1
    assert [line["status"] for line in read(out)] == ["timeout", "timeout"]
