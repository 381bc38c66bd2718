"""The script of minutes on a GPU: what it has measured it does not measure again."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks.gpu import minutes, models, whole_models
from benchmarks.gpu.attentions import ATTENTIONS, AttentionKind
from benchmarks.gpu.kinds import KINDS

BOARD = "NVIDIA GeForce RTX 4090"
NAMES = list(models.MODELS)


def lines(path, *rows, cut=""):
    path.write_text("".join(json.dumps({"board": BOARD, **row}) + "\n" for row in rows) + cut)
    return path


def test_lines_that_are_there_are_not_measured_again(tmp_path) -> None:
    """Those that failed are, and those of another board or of a rehearsal."""
    path = lines(
        tmp_path / "half.jsonl",
        {"stage": "numbers", "kind": "dense", "space": 0, "status": "ok"},
        {"stage": "numbers", "kind": "odd", "space": 0, "status": "ok"},
        {"stage": "numbers", "kind": "odd", "space": 1, "status": "wrong"},
        {"stage": "models", "model": "gpt2", "half": "float16", "status": "ok", "speedup": 1.5},
        {"stage": "models", "model": "resnet50", "half": "float16", "status": "built", "simulated": True},
        {"stage": "products", "kind": "dense", "status": "ok", "board": "another"},
        cut='{"stage": "models", "mod',
    )
    known, found = minutes.done(path, BOARD, simulated=False)
    assert known("numbers", "dense") and known("models", "gpt2", "float16")
    assert not known("numbers", "odd") and not known("products", "dense")
    assert not known("models", "gpt2", "float32") and not known("models", "resnet50", "float16")
    assert [line["speedup"] for line in found if "speedup" in line] == [1.5]
    assert minutes.done(path, BOARD, simulated=True)[0]("models", "resnet50", "float16")
    assert not minutes.done(tmp_path / "none.jsonl", BOARD, simulated=False)[0]("numbers", "dense")


def test_a_rehearsal_writes_a_line_for_each_model_and_goes_on_where_it_ended(tmp_path, monkeypatch) -> None:
    asked = []

    def rehearsed(name, half, board, mode, *, shallow):
        assert mode == "reduce-overhead"
        asked.append((name, half, board))
        return {"status": "failed" if half == "float32" else "built"}

    monkeypatch.setattr(whole_models, "rehearsed", rehearsed)
    out = tmp_path / "try.jsonl"
    command = [
        "--simulate",
        "RTX 4090",
        "--out",
        str(out),
        "--stages",
        "models",
        "--models",
        "gpt2,gpt2-step",
    ]
    assert minutes.main([*command, "--half", "float16"]) == 0
    assert minutes.main([*command, "--half", "float16,float32"]) == 1  # as two have failed
    assert asked == [
        *((name, "float16", "RTX 4090") for name in ("gpt2", "gpt2-step")),
        *((name, "float32", "RTX 4090") for name in ("gpt2", "gpt2-step")),
    ]
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["status"] for line in told] == ["built", "built", "failed", "failed"]
    assert all(line["simulated"] and line["stage"] == "models" for line in told)


def test_attentions_are_looked_at_before_products_and_once(monkeypatch) -> None:
    first, second = ATTENTIONS[:2]

    def compiled(kind, *_):
        if kind is first:
            raise RuntimeError("no such instruction")
        return {"status": "compiled"}

    monkeypatch.setattr(AttentionKind, "scheduled", lambda *_: (None, None))
    monkeypatch.setattr(minutes, "_compiled", compiled)

    def run(known):
        told = minutes.numbers((), (first, second), BOARD, simulated=True, known=lambda *key: key in known)
        return [(line["kind"], line["status"]) for line in told]

    assert run({}) == [(first.name, "failed"), (second.name, "compiled")]
    assert run({("numbers", first.name)}) == [(second.name, "compiled")]
    names = {kind.name for kind in (*KINDS, *ATTENTIONS)}
    assert {*minutes.REHEARSED, *minutes.FEW_ATTENTIONS} <= names


def test_no_model_is_begun_that_would_not_end_in_time(monkeypatch, capsys) -> None:
    """Each has its share of what is left, and never more than that."""
    clock, given = [0.0], []

    def timed(name, half, seconds, mode):
        given.append(seconds)
        clock[0] += seconds
        return {"status": "ok"}

    monkeypatch.setattr(whole_models, "timed", timed)
    how = {"simulated": False, "known": lambda *_: False}

    def run(left):
        clock[0] = 0.0
        given.clear()
        return list(minutes.models(NAMES, ["float16"], lambda: left - clock[0], "max-autotune", BOARD, **how))

    assert len(run(460.0)) == len(NAMES) and sum(given) == pytest.approx(460.0)
    assert len(run(130.0)) == 3 and max(given) <= 130.0 / 3 and clock[0] <= 130.0
    assert "3 models are left" in capsys.readouterr().err
    assert run(minutes.MIN_MODEL_SECONDS - 1) == []


def test_the_default_run_is_the_list_in_float16_in_less_than_eight_minutes() -> None:
    assert minutes.DEFAULT_STAGES.split(",") == ["numbers", "models"]
    assert minutes.MAX_SECONDS <= 480 and set(minutes.DEFAULT_STAGES.split(",")) <= set(minutes.STAGES)
    for asked in ("resnet50", "bert-base", "gpt2", "gpt2-step", "unet-block", "whisper-encoder"):
        assert asked in models.MODELS


@pytest.mark.parametrize("half", ["float16", "bfloat16", "tf32", "float32"])
def test_the_commands_for_a_gpu_are_read_by_their_parsers(tmp_path, half) -> None:
    file = tmp_path / "model.pt2"
    anchor = whole_models.anchor_command("gpt2", half, "max-autotune")
    tune = whole_models.tune_command(file, half, 90.0, tmp_path / "out")
    assert "1.50" in tune
    with pytest.raises(ValueError, match="no such file"):
        whole_models.check_commands(tune, anchor)
    file.touch()
    whole_models.check_commands(tune, anchor)
    with pytest.raises(ValueError, match="not read"):
        whole_models.check_commands([*tune, "--no-such-option"], anchor)
    with pytest.raises(ValueError, match="not read"):
        whole_models.check_commands(tune, ["no-such-model"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path, capsys) -> None:
    assert minutes.main(["--out", str(tmp_path / "half.jsonl")]) == 2
    assert "no GPU here" in capsys.readouterr().err


def test_a_step_of_the_decoder_is_the_last_row_of_its_prefill() -> None:
    """Token by token, each with the keys and values of those before it."""
    torch.manual_seed(0)
    model, x = models.Decoder(layers=2).eval(), torch.randn(1, 3, models.WIDTH)
    keys, values = torch.zeros(2, 2, models.HEADS, 0, models.WIDTH // models.HEADS)
    with torch.no_grad():
        for token in range(3):
            row, keys, values = model(x[:, token : token + 1], keys, values)
        whole = x
        for layer in model.layers:
            q, k, v = layer.inputs(layer.first(whole)).reshape(1, 3, 3, models.HEADS, -1).unbind(2)
            y = torch.nn.functional.scaled_dot_product_attention(
                *(part.transpose(1, 2) for part in (q, k, v)), is_causal=True
            )
            whole = layer.output(y.transpose(1, 2).reshape(whole.shape)) + whole
            whole = layer.inner(layer.second(whole)) + whole
    assert keys.shape == values.shape == (2, models.HEADS, 3, models.WIDTH // models.HEADS)
    torch.testing.assert_close(row, model.last(whole)[:, -1:], rtol=1e-4, atol=1e-4)
