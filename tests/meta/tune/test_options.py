"""`wmsched tune MODEL`: its options, and what it takes where they say nothing."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from wmsched.cli.main import app
from wmsched.metaschedule import defaults
from wmsched.tune import construct_model, tune_model
from wmsched.tune.prepare import SETTINGS


def test_the_best_bundle_there_is(monkeypatch):
    told: list[str] = []
    for kind, shipped, expected in (
        ("llvm", ["x86-avx512", "x86-meta"], "x86-meta"),
        ("llvm", ["x86-avx512"], "x86-avx512"),
        ("cuda", ["cuda-meta", "x86-meta"], "cuda-meta"),
        ("cuda", ["x86-avx512", "x86-meta"], "xgb"),
        ("vulkan", ["cuda-meta", "x86-meta"], "xgb"),
    ):
        monkeypatch.setattr(defaults, "shipped", lambda have=shipped: have)
        assert defaults.default_cost_model(kind, told.append) == expected
    assert len(told) == 3 and all("--cost-model" in text for text in told)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["model.pth"], "torch.export.save"),
        (["net.tflite", "--scheduler", "meta"], "export ONNX"),
        (["resnet50/6", "--shape", "x=1"], "is for --scheduler meta"),
        (["resnet50/6", "--no-pack-weights"], "is for --scheduler meta"),
        (["resnet50/6", "--channels-last"], "is for --scheduler meta"),
        (["net.pt2", "--log", "a.json"], "is for --scheduler ansor"),
        (["resnet50", "--scheduler", "meta", "--rounds", "2"], "is for --scheduler ansor"),
        (["net.pt2", "--cost-model", "xgb", "--online"], "not for --cost-model xgb"),
        (["resnet50/6", "--cost-model", "ansor", "--diversity", "0"], "not for --cost-model ansor"),
        (["net.onnx", "--scheduler", "ansor"], "--scheduler meta"),
        (["resnet50", "--scheduler", "other"], "neither ansor nor meta"),
        (["net.onnx", "--shape", "x=1,b"], "no shape of an input"),
        (["net.onnx", "--shape", "1,2"], "no shape of an input"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, reason):
    done = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, ["tune", *arguments])
    assert done.exit_code == 2 and reason in done.output


@pytest.mark.parametrize(
    "command", [["tune", "net.pt2"], ["tune", "net.pt2", "--trials", "0"], ["compile", "net.pt2"]]
)
def test_bfloat16_is_off_unless_it_is_asked_for(command, monkeypatch):
    seen = []

    def stop(options, **_):
        seen.append(options.bf16)
        raise KeyboardInterrupt

    monkeypatch.setattr(tune_model, "tune_model", stop)
    monkeypatch.setattr(construct_model, "construct_model", stop)
    CliRunner().invoke(app, command)
    CliRunner().invoke(app, [*command, "--bf16"])
    assert seen == [False, True]


def test_the_command_line_leaves_out_what_it_is_told_to(monkeypatch):
    seen = []

    def stop(options, **_):
        seen.append({name: getattr(options, name) for name in (*SETTINGS, "finalists")})
        raise KeyboardInterrupt

    monkeypatch.setattr(tune_model, "tune_model", stop)
    CliRunner().invoke(app, ["tune", "net.pt2"])
    no = [f"--no-{name.replace('_', '-')}" for name in SETTINGS]
    CliRunner().invoke(app, ["tune", "net.pt2", *no, "--finalists", "1"])
    assert seen == [
        dict.fromkeys(SETTINGS, True) | {"finalists": 4},
        dict.fromkeys(SETTINGS, False) | {"finalists": 1},
    ]


def test_a_round_s_search_is_as_large_as_the_round_wants():
    assert [defaults.search_for(n).population_size for n in (4, 16, 32, 64, 99)] == [
        128,
        128,
        256,
        512,
        512,
    ]
    assert defaults.search_for(4, draws_many=True).population_size == 512  # a GPU's spaces
