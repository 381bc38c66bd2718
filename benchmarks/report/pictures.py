"""`python -m benchmarks.report.pictures`: the pictures of README and docs, written to docs/pictures.

The bar chart is drawn from the committed lines of `MODELS`; the others are drawings. A test compares the
committed files with what the command writes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from benchmarks.models.tuned_models import COMPILED, EAGER, KIND, TUNED, UNTUNED
from benchmarks.plan import read_all
from benchmarks.report.svg import Box, Drawing

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
MODELS = ROOT / "benchmarks" / "results" / "zen5-models.jsonl"
BARS = {EAGER: "PyTorch eager", COMPILED: "torch.compile", TUNED: "wmsched tune"}
LONGEST = 300.0  # of a bar, in the picture's units


def pipeline() -> str:
    """What a run of `wmsched tune` does."""
    made = Drawing(900, 190, "A model becomes tasks, candidates, scores, measurements and a library")
    y, width = 30, 122
    boxes = [
        Box(15, y, width, "model", (".onnx, .pt2 or", "PyTorch module"), "file"),
        Box(163, y, width, "tasks", ("one per fused", "function")),
        Box(311, y, width, "candidates", ("thousands of", "schedules a task")),
        Box(459, y, width, "score", ("pretrained model", "ranks them all"), "ours"),
        Box(607, y, width, "measure", ("the best few are", "built and timed")),
        Box(755, y, width + 8, "library", ("fastest schedule", "of each function"), "file"),
    ]
    made.chain(*boxes)
    (x1, y1), (x0, y0) = boxes[4].bottom, boxes[2].bottom
    made.arrow((x1, y1), (x1, 138), (x0, 138), (x0, y0))
    made.text((x0 + x1) / 2, 132, "next round starts from the fastest", "small", "middle")
    note = "Scoring needs no compiler: only the few candidates that are measured are built."
    made.text(450, 174, note, "small", "middle")
    return made.svg()


def results() -> str:
    """Latency of whole models: PyTorch eager, torch.compile and tuned, from the committed lines."""
    last = {line["model"]: line for line in read_all([MODELS]) if line["kind"] == KIND}
    threads = {line["threads"] for line in last.values()}
    cpus = {line["cpu"] for line in last.values()}
    if len(threads) != 1 or len(cpus) != 1:
        raise ValueError(f"{MODELS}: a chart is of one processor and one number of threads")
    made = Drawing(760, 62 + 86 * len(last), "Latency of whole models in PyTorch and tuned by wmsched")
    made.text(20, 30, f"Latency in ms, shorter is better: {cpus.pop()}, {threads.pop()} threads", "strong")
    for place, (model, line) in enumerate(last.items()):
        top = 50 + 86 * place
        seconds = line["seconds"]
        longest = max(seconds[build] for build in BARS)
        made.text(20, top + 26, model, "strong")
        made.text(20, top + 44, f"untuned TVM: {1e3 * seconds[UNTUNED]:.0f} ms", "small")
        for number, (build, label) in enumerate(BARS.items()):
            y = top + 6 + 23 * number
            length = LONGEST * seconds[build] / longest
            made.text(285, y + 13, label, "small", "end")
            made.bar(295, y, length, 17, f"bar{number}")
            gain = f" ({seconds[EAGER] / seconds[build]:.1f} times as fast)" if build == TUNED else ""
            kind = "strong" if gain else "small"
            made.text(303 + length, y + 13, f"{1e3 * seconds[build]:.1f}{gain}", kind)
    return made.svg()


def flow_tuning() -> str:
    """The first data flow: from a model to a library."""
    made = Drawing(900, 330, "Data flow of a whole run, from a model to a library")
    first = [
        Box(15, 25, 125, "model file", (".onnx or .pt2",), "file"),
        Box(166, 25, 130, "relax.importers", ("to a Relax module",)),
        Box(322, 25, 130, "relax.passes", ("layouts, fusion,", "constants")),
        Box(478, 25, 130, "tasks", ("TensorIR functions",)),
        Box(634, 25, 125, "design space", ("rules of the target", "and decisions")),
    ]
    made.chain(*first)
    second = [
        Box(634, 130, 125, "search", ("draw and mutate", "decisions")),
        Box(478, 130, 130, "features", ("phi and h of each", "candidate")),
        Box(322, 130, 130, "model", ("ranker scores", "candidates"), "ours"),
        Box(166, 130, 130, "builder", ("TIR passes, LLVM", "or NVRTC")),
        Box(15, 130, 125, "runner", ("beside a reference,", "cold caches")),
    ]
    made.add(*second)
    made.arrow(first[-1].bottom, second[0].top)
    for one, other in pairwise(second):
        made.arrow(one.left, other.right)
    third = [
        Box(15, 240, 125, "database", ("one record for each", "timed candidate"), "file"),
        Box(166, 240, 130, "finalists", ("timed inside", "the model")),
        Box(322, 240, 130, "build", ("best schedule of", "each function")),
        Box(478, 240, 130, "compare", ("with untuned and", "with PyTorch")),
        Box(634, 240, 125, "tuned folder", ("model.so,", "report.json"), "file"),
    ]
    made.chain(*third)
    made.arrow(second[-1].bottom, third[0].top)
    (x, y), (x1, y1) = second[-1].bottom, second[0].bottom
    made.arrow((x + 30, y), (x + 30, 218), (x1, 218), (x1, y1))
    made.text(430, 213, "next round", "small", "middle")
    made.text(775, 62, "rooms: relax,", "small")
    made.text(775, 78, "metaschedule", "small")
    made.text(775, 152, "rooms: search,", "small")
    made.text(775, 168, "features, model,", "small")
    made.text(775, 184, "codegen, measure", "small")
    made.text(775, 276, "room: tune", "small")
    return made.svg()


def flow_training() -> str:
    """The second data flow: from logs to a bundle."""
    made = Drawing(900, 230, "Data flow of training, from logs to a bundle")
    first = [
        Box(15, 25, 150, "logs, databases", ("AutoScheduler's or", "MetaSchedule's"), "file"),
        Box(195, 25, 150, "data_builder", ("check, replay,", "drop duplicates")),
        Box(375, 25, 150, "dataset", ("Parquet: actions,", "states, seconds"), "file"),
        Box(555, 25, 150, "learn.data", ("folds, rank groups,", "rows of phi and h")),
        Box(735, 25, 150, "learn.training", ("E and F (optional),", "then G"), "ours"),
    ]
    made.chain(*first)
    bundle = Box(735, 140, 150, "bundle", ("config.json, ranker,", "model card"), "file")
    check = Box(555, 140, 150, "learn.evaluate", ("networks held out,", "with intervals"))
    made.add(bundle, check)
    made.arrow(first[-1].bottom, bundle.top)
    made.arrow(bundle.left, check.right)
    made.arrow(first[-2].bottom, check.top)
    made.text(20, 165, "Training and evaluation need no TVM.", "small")
    made.text(20, 183, "data_builder needs the TVM that wrote the records, to replay them.", "small")
    return made.svg()


def flow_scoring() -> str:
    """The third data flow: from a candidate to its score."""
    made = Drawing(900, 250, "Data flow of scoring, from a candidate to a score")
    first = [
        Box(15, 25, 150, "candidate", ("steps (Ansor) or trace", "(MetaSchedule)"), "file"),
        Box(195, 25, 150, "schedules", ("follow it to a", "loop nest, no TVM")),
        Box(375, 25, 150, "features: phi", ("tiles, vectors, cache", "traffic, threads")),
        Box(555, 25, 150, "ranker G", ("boosted trees, their", "margins averaged"), "ours"),
        Box(735, 25, 150, "score", ("higher is faster",), "file"),
    ]
    made.chain(*first)
    target = Box(195, 145, 150, "features: h", ("cores, caches, vector", "width of the target"))
    encoder = Box(375, 145, 150, "encoder E", ("state of the", "initial program"))
    transition = Box(555, 145, 150, "transition F", ("state after", "the actions"))
    made.add(target, encoder, transition)
    x, _ = first[3].bottom
    made.arrow((330, 145), (330, 118), (600, 118), (600, 91))
    made.arrow(encoder.right, transition.left)
    made.arrow((x + 30, 145), (x + 30, 91))
    made.text(722, 168, "Only the paper's bundle has", "small")
    made.text(722, 184, "E and F. The others rank", "small")
    made.text(722, 200, "by phi and h.", "small")
    return made.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "pipeline.svg": pipeline,
    "results.svg": results,
    "flow-tuning.svg": flow_tuning,
    "flow-training.svg": flow_training,
    "flow-scoring.svg": flow_scoring,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report.pictures", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (docs/pictures)")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (options.out / name).write_text(draw(), encoding="utf-8")
        print(options.out / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
