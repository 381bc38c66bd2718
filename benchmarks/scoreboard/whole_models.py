"""Figures of whole models: construction, other runtimes, busy machines, the call of a loaded model."""

from __future__ import annotations

import functools
import statistics
from pathlib import Path
from typing import Any

from benchmarks.plan import read_all
from benchmarks.runtimes import bfloat16, busy, compare, decode, disturbed, graph_choices, quantized, shapes
from benchmarks.scoreboard import registry
from benchmarks.scoreboard.figure import Figure, Measured

RUNTIMES = "emr-runtimes.jsonl"
BUSY = "emr-busy.jsonl"
INT8 = "emr-int8.jsonl"
BF16 = "emr-bf16.jsonl"
COMPARE = "python -m benchmarks.runtimes.compare --folder DIR --out benchmarks/results/emr-runtimes.jsonl"
HELD_OUT = "emr-held-out.jsonl"
ALL = ",".join((*compare.OURS, *compare.OTHERS))
SIXTEEN = f"{COMPARE} --runtimes {ALL}"
UNSEEN = (
    f"python -m benchmarks.runtimes.compare --folder DIR --out benchmarks/results/{HELD_OUT} "
    f"--models {','.join(compare.HELD_OUT)}"
)
WHOLE_MODELS: list[Figure] = []
figure = functools.partial(registry.figure, into=WHOLE_MODELS)
EIGHT = (
    "python -m benchmarks.runtimes.compare --folder DIR --out benchmarks/results/emr-int8.jsonl --models "
    + ",".join(one for name in quantized.MODELS for one in (name, name + quantized.SUFFIX))
)
SHAPES = "emr-shapes.jsonl"
LENGTHS = "python -m benchmarks.runtimes.shapes --folder DIR --out benchmarks/results/emr-shapes.jsonl"
DECODED = "emr-decode.jsonl"
STEP = "python -m benchmarks.runtimes.decode --folder DIR --out benchmarks/results/emr-decode.jsonl"
HALF = (
    "python -m benchmarks.runtimes.compare --folder DIR --out benchmarks/results/emr-bf16.jsonl --models "
    + ",".join(one for name in bfloat16.MODELS for one in (name, name + bfloat16.SUFFIX))
)
GRAPHS = "emr-graphs.jsonl"
CHOSEN = "python -m benchmarks.runtimes.graph_choices --folder DIR --out benchmarks/results/emr-graphs.jsonl"
BESIDE = "python -m benchmarks.runtimes.busy --folder DIR --out benchmarks/results/emr-busy.jsonl"

DISTURBED = "emr-disturbed.jsonl"
SEARCHED = "python -m benchmarks.runtimes.disturbed --folder DIR --out benchmarks/results/emr-disturbed.jsonl"


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(read_all([folder / name]))


def _seconds(folder: Path) -> list[float]:
    last = {
        one["model"]: one["seconds"] for one in _lines(folder, RUNTIMES) if one["kind"] == compare.CONSTRUCT
    }
    if not last:
        raise ValueError("no model was constructed in its lines")
    return list(last.values())


@figure("construct.seconds_max", RUNTIMES, asked="max 40", command=COMPARE)
def _seconds_max(folder: Path) -> Measured:
    return Measured(max(_seconds(folder)))


@figure("construct.seconds_median", RUNTIMES, asked="max 25", command=COMPARE)
def _seconds_median(folder: Path) -> Measured:
    return Measured(statistics.median(_seconds(folder)))


@figure("construct.over_eager_worst", RUNTIMES, asked="min 1", command=COMPARE)
def _over_eager(folder: Path) -> Measured:
    return Measured(min(_over(folder, "eager", "constructed")))


@figure("construct.over_torch_compile_worst", RUNTIMES, asked="min 1", command=COMPARE)
def _over_torch_compile(folder: Path) -> Measured:
    return Measured(min(_over(folder, "torch.compile", "constructed")))


@figure("runtimes.constructed_geomean_over_best", RUNTIMES, asked="min 0.95", command=COMPARE)
def _constructed_over_best(folder: Path) -> Measured:
    return Measured(compare.geomean(list(_over_best(folder, RUNTIMES, "constructed").values())))


@figure("runtimes.constructed_worst_over_best", RUNTIMES, command=COMPARE)
def _constructed_worst(folder: Path) -> Measured:
    return Measured(min(_over_best(folder, RUNTIMES, "constructed").values()))


@figure("construct.over_tuned16_geomean", RUNTIMES, asked="max 1.1", command=SIXTEEN)
def _over_tuned(folder: Path) -> Measured:
    return Measured(compare.geomean(_over(folder, "constructed", "searched")))


@figure("construct.over_tuned16_worst", RUNTIMES, asked="max 1.3", command=SIXTEEN)
def _over_tuned_worst(folder: Path) -> Measured:
    return Measured(max(_over(folder, "constructed", "searched")))


@figure("runtimes.fp32_geomean_over_best", RUNTIMES, asked="min 1.15", command=SIXTEEN)
def _fp32(folder: Path) -> Measured:
    return Measured(compare.geomean(list(_over_best(folder, RUNTIMES, "searched").values())))


@figure("runtimes.fp32_worst", RUNTIMES, asked="min 0.95", command=SIXTEEN)
def _fp32_worst(folder: Path) -> Measured:
    return Measured(min(_over_best(folder, RUNTIMES, "searched").values()))


@figure("runtimes.resnet50", RUNTIMES, asked="min 1.1", command=SIXTEEN)
def _resnet50(folder: Path) -> Measured:
    return Measured(_over_best(folder, RUNTIMES, "searched")["resnet50"])


@figure("runtimes.mobilenetv2", RUNTIMES, asked="min 1.2", command=SIXTEEN)
def _mobilenetv2(folder: Path) -> Measured:
    return Measured(_over_best(folder, RUNTIMES, "searched")["mobilenetv2"])


@figure("runtimes.heldout_constructed_geomean_over_best", HELD_OUT, command=UNSEEN)
def _held_out_constructed(folder: Path) -> Measured:
    ratios = _over_best(folder, HELD_OUT, "constructed")
    return Measured(compare.geomean([ratios[model] for model in compare.HELD_OUT]))


def _over_best(folder: Path, place: str, ours: str) -> dict[str, float]:
    found = compare.over_best(_lines(folder, place), ours)
    if not found:
        raise ValueError(f"no model is {ours} beside another runtime in its lines")
    return found


def _over(folder: Path, theirs: str, ours: str) -> list[float]:
    found = compare.last_runs(_lines(folder, RUNTIMES), theirs, ours).values()
    ratios = [compare.paired(times[theirs], times[ours]) for times in found]
    if not ratios:
        raise ValueError(f"no model has both {theirs} and {ours} in its lines")
    return ratios


def _busy(folder: Path, name: str) -> Measured:
    found = busy.figures(_lines(folder, BUSY))
    if name not in found:
        raise ValueError(f"{name} is not in its lines")
    return Measured(found[name])


@figure("busy.worst_over_onnxruntime", BUSY, asked="max 1.3", command=BESIDE)
def _busy_worst(folder: Path) -> Measured:
    return _busy(folder, "busy.worst_over_onnxruntime")


@figure("busy.alone_over_tvm_pool", BUSY, asked="max 1.02", command=BESIDE)
def _busy_alone(folder: Path) -> Measured:
    return _busy(folder, "busy.alone_over_tvm_pool")


def _disturbed(folder: Path, name: str) -> Measured:
    found = disturbed.figures(_lines(folder, DISTURBED))
    if not found:
        raise ValueError("no pair of searches is in its lines")
    return Measured(found[name])


@figure("disturbed.geomean", DISTURBED, asked="max 1.05", command=SEARCHED)
def _disturbed_geomean(folder: Path) -> Measured:
    return _disturbed(folder, "disturbed.geomean")


@figure("disturbed.worst", DISTURBED, asked="max 1.05", command=SEARCHED)
def _disturbed_worst(folder: Path) -> Measured:
    return _disturbed(folder, "disturbed.worst")


@figure("call.overhead_worst", BUSY, asked="max 1.02", command=BESIDE)
def _call(folder: Path) -> Measured:
    return _busy(folder, "call.overhead_worst")


def _eight(folder: Path, over: str) -> Measured:
    found = quantized.ratios(compare.medians(_lines(folder, INT8)), over)
    if not found:
        raise ValueError(f"no quantized model is beside {over} in its lines")
    return Measured(compare.geomean(list(found.values())))


@figure("precision.int8_over_fp32_geomean", INT8, asked="min 2", command=EIGHT)
def _eight_over_float(folder: Path) -> Measured:
    return _eight(folder, "fp32")


@figure("precision.int8_over_onnxruntime_geomean", INT8, asked="min 1", command=EIGHT)
def _eight_over_onnxruntime(folder: Path) -> Measured:
    return _eight(folder, "onnxruntime")


@figure("precision.int8_over_openvino_geomean", INT8, asked="min 0.9", command=EIGHT)
def _eight_over_openvino(folder: Path) -> Measured:
    return _eight(folder, "openvino")


@figure("shapes.three_over_one_seconds", SHAPES, asked="max 1.5", command=LENGTHS)
def _three_over_one(folder: Path) -> Measured:
    """Seconds of one run of three lengths over that of the longest alone, the worst case."""
    return _worst(list(shapes.three_over_one(_lines(folder, SHAPES)).values()))


@figure("shapes.worst_over_own", SHAPES, asked="max 1.05", command=LENGTHS)
def _over_own(folder: Path) -> Measured:
    """A length's latency in the run of three over that of a run of it alone, the worst case."""
    return _worst(list(shapes.over_own(_lines(folder, SHAPES)).values()))


def _worst(found: list[float]) -> Measured:
    if not found:
        raise ValueError("no case is complete in its lines")
    return Measured(max(found), min(found), max(found))


@figure("decode.over_onnxruntime", DECODED, command=STEP)
def _decoded(folder: Path) -> Measured:
    """How many times as fast as onnxruntime a step of GPT-2 after 128 tokens is, tokens being equal."""
    return Measured(decode.over(_lines(folder, DECODED), decode.ORT))


@figure("precision.bf16_over_fp32_geomean", BF16, command=HALF)
def _bfloat16_over_float(folder: Path) -> Measured:
    return _bfloat16(folder, "fp32")


@figure("precision.bf16_over_openvino_geomean", BF16, command=HALF)
def _bfloat16_over_openvino(folder: Path) -> Measured:
    return _bfloat16(folder, "openvino")


def _bfloat16(folder: Path, over: str) -> Measured:
    found = quantized.ratios(compare.medians(_lines(folder, BF16)), over, suffix=bfloat16.SUFFIX)
    if not found:
        raise ValueError(f"no model in bfloat16 is beside {over} in its lines")
    return Measured(compare.geomean(list(found.values())))


@figure("graph.models_geomean", GRAPHS, asked="min 1.08", command=CHOSEN)
def _graphs(folder: Path) -> Measured:
    """Constructed libraries with today's rules over those with a chosen graph, in turns."""
    found = _gains(folder)
    return Measured(compare.geomean(found), min(found), max(found))


@figure("graph.models_worst", GRAPHS, asked="min 0.98", command=CHOSEN)
def _graphs_worst(folder: Path) -> Measured:
    return Measured(min(_gains(folder)))


@figure("graph.models_best", GRAPHS, asked="min 1.3", command=CHOSEN)
def _graphs_best(folder: Path) -> Measured:
    return Measured(max(_gains(folder)))


def _gains(folder: Path) -> list[float]:
    found = list(graph_choices.gains(_lines(folder, GRAPHS)).values())
    if not found:
        raise ValueError("no model is in its lines")
    return found
