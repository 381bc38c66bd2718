"""`python -m benchmarks.runtimes.compare --folder DIR --out FILE`: models in wmsched and in other runtimes.

Each model is exported as ONNX into DIR, compiled there by ``wmsched compile`` (kind "construct": seconds from
the command to a library that runs, and the peak memory of its process) and, where "searched" is asked for,
tuned with 16 trials a function. Then all runtimes are called in turns, each in a process of its own, loaded
once: kind "runtime", one JSON line a model and runtime, with the median and 99th percentile in microseconds.
FILE is gone on with; what it has is not measured again. Then its table. NAME-int8 is NAME quantized,
NAME-bf16 the same file in bfloat16.

The exporter needs onnxscript; onnxruntime and OpenVINO are run by the Python that is named for them.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.outcomes.marks import Marks
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Results, read_all
from benchmarks.runtimes import bfloat16
from benchmarks.runtimes.bfloat16 import is_bfloat16
from benchmarks.runtimes.busy import REST, Child, quantile
from benchmarks.runtimes.quantized import SUFFIX, is_quantized, quantize

KIND, CONSTRUCT = "runtime", "construct"
OURS = ("constructed", "searched")
OTHERS = ("onnxruntime", "openvino", "torch.compile", "eager")
MODELS = (
    "mobilenetv2", "resnet50", "bert-base", "gpt2", "efficientnet-b0", "vit-s", "detector", "lstm-2x128",
    "densenet-121", "shufflenetv2", "whisper-tiny-encoder", "mobilenetv3", "t5-encoder", "u-net",
)  # fmt: skip
HELD_OUT = ("convnext-t", "swin-t", "recommender")  # measured once, after all changes
ROUNDS, SECONDS = 5, 3.0  # turns of each runtime, and their length
LIMIT_SECONDS = 3600.0
OF_PROGRAMS = ("torch.compile", "eager")  # runtimes that quantized files are not for


def exported(folder: Path, model: str) -> None:
    """Write a model's files into a folder, unless they are there."""
    from benchmarks.runtimes.models import export

    _, graph = export(model.removesuffix(SUFFIX).removesuffix(bfloat16.SUFFIX), folder)
    if is_quantized(model):
        quantize(graph, folder / f"{model}.onnx")


def construct(folder: Path, model: str) -> dict[str, Any]:
    """Compile a model without a measurement; a line of how long that took. Raises CalledProcessError."""
    out = folder / "constructed" / model
    command = [sys.executable, "-m", "wmsched", "compile", *_given(folder, model), "--out", str(out)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(status, command)
    return {
        "kind": CONSTRUCT,
        "model": model,
        "seconds": round(time.monotonic() - began, 2),
        "peak_bytes": used.ru_maxrss * 1024,
    }


def _given(folder: Path, model: str) -> list[str]:
    """A model's file, and the option of its precision."""
    file = str(folder / f"{model.removesuffix(bfloat16.SUFFIX)}.onnx")
    return [file, "--bf16"] if is_bfloat16(model) else [file]


def _left_out(model: str) -> tuple[str, ...]:
    """Runtimes that a model is not for."""
    return OF_PROGRAMS if is_quantized(model) else bfloat16.WITHOUT if is_bfloat16(model) else ()


def search(folder: Path, model: str) -> None:
    """Tune a model with 16 trials for each function, unless that is done. Raises CalledProcessError."""
    out = folder / "searched" / model
    if not (out / "report.json").is_file():
        command = [sys.executable, "-m", "wmsched", "tune", *_given(folder, model), "--resume"]
        subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)


def measure(
    folder: Path, model: str, runtimes: Sequence[str], python: str, rounds: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Lines of a model, all runtimes in turns."""
    paths = {name: folder / name / model for name in OURS}
    paths |= {name: Path(model) for name in ("eager", "torch.compile")}
    children = {}
    for name in runtimes:
        try:
            children[name] = Child(name, paths.get(name, folder / f"{model}.onnx"), python)
        except RuntimeError as error:  # it cannot run the model, and has said why
            print(f"{model}, {name}: left out ({error})", file=sys.stderr)
    runtimes = list(children)
    times: dict[str, list[list[float]]] = {name: [] for name in runtimes}
    others = os.getloadavg()[0]
    try:
        for turn in range(rounds):  # nobody is always the one after the slowest
            for name in (*runtimes[turn % len(runtimes) :], *runtimes[: turn % len(runtimes)]):
                times[name].append(children[name].latencies(seconds))
                time.sleep(REST)
    finally:
        for child in children.values():
            child.close()
    for name in runtimes:
        calls = [one for turn in times[name] for one in turn]
        yield {
            "kind": KIND, "model": model, "runtime": name, "calls": len(calls),
            "median": round(statistics.median(statistics.median(turn) for turn in times[name]), 2),
            "p99": round(quantile(calls, 0.99), 2),
            "turns": [round(statistics.median(turn), 2) for turn in times[name]],
            "load_before": round(others, 2),
        }  # fmt: skip


def medians(lines: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median microseconds by model and runtime, of the last line of each."""
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        if line["kind"] == KIND:
            found.setdefault(line["model"], {})[line["runtime"]] = line["median"]
    return found


def over_best(lines: Sequence[dict[str, Any]], ours: str) -> dict[str, float]:
    """By model: the best other runtime's time over ours; PyTorch eager is no runtime to beat.

    It is the median of the rounds' ratios: on a machine whose speed changes, a round has more in common.
    """
    found = {}
    for model, times in last_runs(lines, ours).items():
        rest = [times[name] for name in OTHERS if name in times and name != "eager"]
        if rest:
            found[model] = min(paired(each, times[ours]) for each in rest)
    return found


def last_runs(lines: Sequence[dict[str, Any]], *wanted: str) -> dict[str, dict[str, list[float]]]:
    """By model: the turns of each runtime of the last run that has those that are wanted.

    A run is the lines of one model that follow each other. Times of different runs are not compared.
    """
    found: dict[str, dict[str, list[float]]] = {}
    run: dict[str, list[float]] = {}
    before = ""
    for line in lines:
        if line["kind"] != KIND:
            before = ""
            continue
        if line["model"] != before or line["runtime"] in run:
            run, before = {}, line["model"]
        run[line["runtime"]] = line.get("turns") or [line["median"]]
        if all(name in run for name in wanted):
            found[line["model"]] = run
    return found


def paired(others: Sequence[float], ours: Sequence[float]) -> float:
    """Median ratio of two runtimes in the rounds of a run."""
    return statistics.median(other / own for other, own in zip(others, ours, strict=True))


def geomean(values: Sequence[float]) -> float:
    """Geometric mean; NaN of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Milliseconds of each runtime, and how many times as fast as the best other one ours is."""
    found = medians(lines)
    runtimes = [name for name in (*OURS, *OTHERS) if any(name in times for times in found.values())]
    seconds = {line["model"]: line["seconds"] for line in lines if line["kind"] == CONSTRUCT}
    ratios = {name: over_best(lines, name) for name in OURS}
    rows = []
    for model, times in found.items():
        cells = [model, f"{seconds[model]:.0f}" if model in seconds else ""]
        cells += [f"{times[name] / 1000:.3g}" if name in times else "" for name in runtimes]
        cells += [f"{ratios[name][model]:.2f}" if model in ratios[name] else "" for name in OURS]
        rows.append(cells)
    note = "; ".join(
        f"{name} over the best other: geometric mean {geomean(list(each.values())):.2f} of {len(each)}"
        for name, each in ratios.items()
        if each
    )
    head = ["model", "seconds to compile", *(f"{name}, ms" for name in runtimes)]
    head += [f"{name}: times as fast as the best other" for name in OURS]
    return Table(title="Whole models beside other runtimes", head=head, rows=rows, note=note)


PAGE = "README.md"
MARKS = Marks("<!-- runtimes:begin -->", "<!-- runtimes:end -->")


def block(lines: Sequence[dict[str, Any]], place: str) -> str:
    """The README's table of committed lines: ours constructed and searched, each runtime, and the ratios."""
    runs, ratios = last_runs(lines, "constructed"), {name: over_best(lines, name) for name in OURS}
    found = {
        model: {name: statistics.median(turns) for name, turns in run.items()} for model, run in runs.items()
    }
    seconds = {line["model"]: line["seconds"] for line in lines if line["kind"] == CONSTRUCT}
    models = [model for model in found if model in ratios["constructed"] and model in seconds]
    ours = [name for name in OURS if any(name in found[model] for model in models)]
    titles = {"constructed": "compile", "searched": "16 trials"}
    head = ["model", "seconds", *(titles[name] for name in ours), *OTHERS]
    head += ["ratio", "of 16 trials"][: len(ours)]

    def ratio(name: str, model: str) -> str:
        value = ratios[name].get(model)
        return "" if value is None else f"**{value:.2f}**" if value >= 1 else f"{value:.2f}"

    rows = [
        [
            model,
            f"{seconds[model]:.0f}",
            *(
                f"{found[model][name] / 1000:.3g}" if name in found[model] else ""
                for name in (*ours, *OTHERS)
            ),
            *(ratio(name, model) for name in ours),
        ]
        for model in models
    ]
    machines = sorted({f"{line['cpu']}, {line['cores']} cores" for line in lines})
    means = [f"{titles[name]} {geomean(list(ratios[name].values())):.2f}" for name in ours]
    note = (
        f"Milliseconds a call, float32, medians of turns; {'; '.join(machines)}.\n"
        f"Over the best of onnxruntime, OpenVINO and torch.compile, geometric means: {', '.join(means)}.\n"
        "Seconds are those of `wmsched compile`; ratios are the best other runtime's time over ours.\n"
        f"Printed by `python -m benchmarks.runtimes.compare --out {place} --print`."
    )
    text = Table(title="", head=head, rows=rows, note="").markdown().strip()
    return text + "\n\n" + note


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.runtimes.compare", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--folder", type=Path, help="of models, exported and compiled")
    parser.add_argument("--print", action="store_true", help="print the README's table and measure nothing")
    parser.add_argument("--into", type=Path, help=f"write that table into a page, such as {PAGE}")
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    parser.add_argument("--models", default=",".join(MODELS), help="(%(default)s)")
    parser.add_argument("--runtimes", default=",".join(("constructed", *OTHERS)), help="(%(default)s)")
    parser.add_argument("--python", default=sys.executable, help="that has onnxruntime and OpenVINO")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each runtime (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a turn (%(default)s)")
    options = parser.parse_args(argv)
    if options.print or options.into:
        made = block(list(read_all([options.out])), options.out.as_posix())
        if options.into:
            page = options.into.read_text(encoding="utf-8")
            options.into.write_text(MARKS.replaced(page, made), encoding="utf-8")
        else:
            print(made)
        return 0
    if options.folder is None:
        parser.error("--folder is wanted: models are exported and compiled there")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    results, about = Results(options.out), machine.describe()
    asked = options.runtimes.split(",")

    def add(line: dict[str, Any]) -> None:
        results.append({**line, "date": datetime.now(UTC).isoformat(timespec="seconds"), **about})

    for model in options.models.split(","):
        have = {line["runtime"] for line in results.lines if line.get("model") == model and "runtime" in line}
        runtimes = [name for name in asked if name not in _left_out(model)]
        if set(runtimes) <= have:
            continue
        exported(options.folder, model)
        if "constructed" in runtimes:
            line = construct(options.folder, model)
            console.print(f"{model}: constructed in {line['seconds']} s")
            add(line)
        if "searched" in runtimes:
            search(options.folder, model)
        for line in measure(options.folder, model, runtimes, options.python, options.rounds, options.seconds):
            console.print(f"{model}, {line['runtime']}: {line['median'] / 1000:.3f} ms")
            add(line)
    print(table(results.lines).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
