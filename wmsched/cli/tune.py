"""Command ``wmsched tune``. Heavy imports wait for the command."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wmsched.base.console import own_console, say
from wmsched.base.cores import idle_cores, limit_threads
from wmsched.cli.algorithms import (
    AttentionKernels,
    Bfloat16,
    DepthwiseKernels,
    Half,
    ProductKernels,
    States,
    Winograd,
)
from wmsched.cli.constructed import construct
from wmsched.cli.outcome import BUILD, _print_left, _print_tasks, _print_whole, print_shapes
from wmsched.measure.buffer_offsets import PLACES
from wmsched.measure.tracker import Tracker
from wmsched.tune import options
from wmsched.tune.shapes.choices import parse_extents, variants

if TYPE_CHECKING:
    from rich.console import Console

ANSOR, META = "ansor", "meta"
GRAPH_CHOICES = (
    "Graphs of the model to build and time, today's among them: convolutions by Winograd or as products, "
    "activations apart. 1: today's alone."
)
ONE_SCHEDULER_OPTIONS = {  # options of one scheduler alone
    ANSOR: ("log", "rounds", "workloads"),
    META: (
        "shape", "state", "out", "pack-weights", "channels-last", "wide-fusion", "eight-bits", "winograd",
        "depthwise-kernels", "product-kernels", "attention-kernels", "bf16", "cold-caches", "finalists",
        "graph-choices", "allow-different", "half", "rpc", "key",
    ),
}  # fmt: skip

OTHER_FILES = (".pt", ".pth", ".ts", ".tflite", ".pb", ".h5", ".keras", ".safetensors", ".mlir", ".json")


def tune(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model file, .onnx or .pt2 (torch.export.save); or a benchmark task, type or model: "
            '"resnet50/6", "conv2d-relu", "gpt2".',
        ),
    ],
    trials: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Total measurements; default: 16 a task (AutoScheduler: at least 64 in all), unlimited with "
            "--minutes. 0: none, as wmsched compile does.",
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Search time, to the end of a round.")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="ansor: AutoScheduler, for tasks. meta: MetaSchedule, for model files. Default: by MODEL."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for a model file's database, library and report; default: MODEL.tuned."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="AutoScheduler log to append records to; default: tuning.json."),
    ] = None,
    cost_model: Annotated[
        str | None,
        typer.Option(
            help="A bundle's name or folder, or a baseline: ansor or xgb, random. Default: the best shipped "
            "bundle."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from existing records.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Let the cost model learn from this run.")] = False,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Search rounds of each task; default: 4, fewer if a round had under 16 measurements, more "
            "if over 64.",
        ),
    ] = None,
    diversity: Annotated[
        float, typer.Option(min=0, help="Strength of fitness sharing among similar candidates; 0: off.")
    ] = options.DIVERSITY,
    target: Annotated[str | None, typer.Option(help="TVM target; default: this machine's processor.")] = None,
    workloads: Annotated[
        Path | None,
        typer.Option(help="JSON workload file that contains MODEL (an id, desc, network or all)."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="Shape of an input that the file leaves open: data=1,3,224,224; or several to choose from: "
            "ids=1,16/64/128. Repeatable."
        ),
    ] = None,
    state: States = None,
    places: Annotated[
        int, typer.Option(min=1, help="Sets of buffers that a candidate is timed on (CPU).")
    ] = PLACES,
    vector_math: Annotated[
        bool,
        typer.Option(
            "--vector-math/--no-vector-math",
            help="Vectorize exp, tanh, erf, log (instead of a C library call for each element), row sums and "
            "plain loops; prefetch in matrix products (CPU).",
        ),
    ] = True,
    pack_weights: Annotated[
        bool | None,
        typer.Option(
            "--pack-weights/--no-pack-weights",
            help="Let schedules change the layout of a model's weights (CPU). Default: on.",
        ),
    ] = None,
    channels_last: Annotated[
        bool | None,
        typer.Option(
            "--channels-last/--no-channels-last",
            help="Convert a model's convolutions to channels-last (CPU). Default: on.",
        ),
    ] = None,
    wide_fusion: Annotated[
        bool | None,
        typer.Option(
            "--wide-fusion/--no-wide-fusion",
            help="Fuse a model's matrix products with consumers across reshapes (CPU). Default: on.",
        ),
    ] = None,
    eight_bits: Annotated[
        bool | None,
        typer.Option(
            "--eight-bits/--no-eight-bits",
            help="Compute the quantized parts of a model in eight bits (CPU). Default: on.",
        ),
    ] = None,
    winograd: Winograd = True,
    depthwise_kernels: DepthwiseKernels = True,
    product_kernels: ProductKernels = True,
    attention_kernels: AttentionKernels = True,
    bf16: Bfloat16 = False,
    cold_caches: Annotated[
        bool | None,
        typer.Option(
            "--cold-caches/--no-cold-caches",
            help="Flush the caches before each timed call of a candidate (CPU, model files). Default: on.",
        ),
    ] = None,
    finalists: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Schedules of each function timed inside the whole model at the end (CPU); 1: none, the "
            "fastest standalone schedule wins. Default: 4.",
        ),
    ] = None,
    graph_choices: Annotated[
        int | None, typer.Option(min=1, help=f"{GRAPH_CHOICES} (CPU, model files.)")
    ] = None,
    allow_different: Annotated[
        bool | None,
        typer.Option(
            "--allow-different",
            help="Go on where the model computes something else here than in PyTorch or onnxruntime (model "
            "files). Default: refuse.",
        ),
    ] = None,
    half: Half = None,
    seed: Annotated[int | None, typer.Option(min=1, help="Random seed of the search.")] = None,
    rpc: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="TVM's RPC tracker: time candidates on its devices (wmsched device)."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Name of the devices behind --rpc to use.")] = None,
    session_priority: Annotated[int, typer.Option(help="Of this search behind --rpc, beside others.")] = 1,
    session_timeout_sec: Annotated[
        float,
        typer.Option(min=1, help="Silence beyond a time limit after which a device of --rpc is lost."),
    ] = 10,
) -> None:
    """Tune with a pretrained cost model: tasks with AutoScheduler, model files with MetaSchedule."""
    chosen = _scheduler(name, scheduler)
    given = {
        "log": log,
        "rounds": rounds,
        "workloads": workloads,
        "shape": shape or None,
        "state": state or None,
        "out": out,
        "pack-weights": pack_weights,
        "channels-last": channels_last,
        "wide-fusion": wide_fusion,
        "eight-bits": eight_bits,
        "winograd": None if winograd else False,
        "depthwise-kernels": None if depthwise_kernels else False,
        "product-kernels": None if product_kernels else False,
        "attention-kernels": None if attention_kernels else False,
        "bf16": bf16 or None,
        "cold-caches": cold_caches,
        "finalists": finalists,
        "graph-choices": graph_choices,
        "allow-different": allow_different or None,
        "half": half,
        "rpc": rpc,
        "key": key,
    }
    other = META if chosen == ANSOR else ANSOR
    for option in ONE_SCHEDULER_OPTIONS[other]:
        if given[option] is not None:
            hint = "tunes a file, or a named model with --scheduler meta" if other == META else "tunes tasks"
            raise typer.BadParameter(f"is for --scheduler {other}, which {hint}", param_hint=f"--{option}")
    if cost_model in {ANSOR: options.STOCK, META: options.STOCK}[chosen]:
        for option, is_given in (("online", online), ("diversity", diversity != options.DIVERSITY)):
            if is_given:
                raise typer.BadParameter(
                    f"is for wmsched's bundles, not for --cost-model {cost_model}", param_hint=f"--{option}"
                )
    common: dict[str, Any] = {
        "name": name,
        "resume": resume,
        "online": online,
        "diversity": diversity,
        "target": target,
        "seed": seed,
        "places": places,
        "trials": trials,
        "minutes": minutes,
        "vector_math": vector_math,
    }
    console = own_console()
    if held := limit_threads(os.environ):
        say(console, held)
    if chosen == META:
        shapes = parse_shapes(shape or ())
        folder = out or default_folder(name)
        builds = {
            "pack_weights": pack_weights,
            "channels_last": channels_last,
            "wide_fusion": wide_fusion,
            "eight_bits": eight_bits,
            "winograd": winograd,
            "depthwise_kernels": depthwise_kernels,
            "product_kernels": product_kernels,
            "attention_kernels": attention_kernels,
            "cold_caches": cold_caches,
        }
        common |= {name: value is not False for name, value in builds.items()}
        common |= {"finalists": finalists} if finalists else {}
        common |= {"graph_choices": graph_choices} if graph_choices else {}
        common |= {"allow_different": bool(allow_different), "bf16": bool(bf16), "half": half or ""}
        if rpc is not None or key is not None:
            if rpc is None or key is None or trials == 0:
                why = "takes both --rpc HOST:PORT and --key, and a search"
                raise typer.BadParameter(why, param_hint="--rpc")
            common["rpc"] = Tracker.parse(
                rpc, key, session_priority=session_priority, session_timeout_sec=session_timeout_sec
            )
        common |= shapes | {"cost_model": cost_model, "states": tuple(state or ())}
        if trials == 0:
            construct(console, folder, {"finalists": 1} | common)
            return
        _whole(console, folder, common)
        return
    if trials == 0:
        raise typer.BadParameter("is for whole models: tasks are tuned by measuring", param_hint="--trials")
    if idle := idle_cores(os.environ):
        say(console, idle)
    path = log or Path("tuning.json")
    more = {"cost_model": cost_model, "rounds": rounds, "log": path}
    _tasks(console, path, common | more | {"workloads": workloads})


def _tasks(console: Console, log: Path, settings: dict[str, Any]) -> None:
    from wmsched.tune.progress import duration
    from wmsched.tune.tasks.tune_tasks import tune as run

    start = time.monotonic()
    try:
        found = run(options.TuneOptions(**settings), console=console)
    except KeyboardInterrupt:
        print(f"wmsched: stopped; --resume continues from {log}", file=sys.stderr)
        raise typer.Exit(130) from None
    took = duration(time.monotonic() - start)
    say(console, f"\nbest in {log}, after {took}")
    _print_tasks(console, found)
    option, value = ("", "") if settings["vector_math"] else (", vector_math=False", "False")
    say(console, BUILD.format(log=str(log), option=option, value=value))


def _whole(console: Console, out: Path, settings: dict[str, Any]) -> None:
    from wmsched.tune.tune_model import tune_model

    asked = options.ModelOptions(out=out, **settings)
    try:
        if asked.variants:
            from wmsched.tune.shapes.tuning import tune_shapes

            shaped = tune_shapes(asked, console=console)
        else:
            found = tune_model(asked, console=console)
    except KeyboardInterrupt:
        print(f"wmsched: stopped; --resume continues from {out}", file=sys.stderr)
        raise typer.Exit(130) from None
    say(console, "")
    if asked.variants:
        print_shapes(console, shaped)
        tasks = [task for part in shaped.parts.values() for task in part.tasks]
    else:
        tasks = found.tasks
        _print_tasks(console, tasks)
        _print_left(console, tasks)
        _print_whole(console, found)
    if not any(task.seconds > 0 for task in tasks):
        print("wmsched: no schedule of any task has run; the messages above say why", file=sys.stderr)
        raise typer.Exit(1)


def default_folder(name: str) -> Path:
    """Folder of a model's library where none is named: ``MODEL.tuned``."""
    from wmsched.relax.importers.load import is_file

    return Path(f"{Path(name).stem if is_file(name) else name}.tuned")


def _scheduler(name: str, wanted: str | None) -> str:
    from wmsched.relax.importers.load import is_file

    path = Path(name)
    if not is_file(name) and (path.suffix.lower() in OTHER_FILES or (path.suffix and path.is_file())):
        raise typer.BadParameter(
            f"{name!r} is no .onnx or .pt2 file. From PyTorch: torch.export.save(torch.export.export("
            "model.eval(), (example,)), 'model.pt2'); from elsewhere export ONNX",
            param_hint="MODEL",
        )
    if wanted is None:
        return META if is_file(name) else ANSOR
    if wanted not in (ANSOR, META):
        raise typer.BadParameter(f"{wanted!r} is neither {ANSOR} nor {META}", param_hint="--scheduler")
    if wanted == ANSOR and is_file(name):
        raise typer.BadParameter(
            f"{name} is a model file: tune it with --scheduler {META}", param_hint="--scheduler"
        )
    return wanted


def parse_shapes(texts: Iterable[str]) -> dict[str, Any]:
    """Return the options ``--shape`` as ``shapes``, or as ``variants`` where one has choices: 1,16/64/128."""
    choices = dict(parse_shape(text) for text in texts)
    found = variants(choices)
    if len(found) > 1:
        return {"variants": found}
    return {"shapes": found[0]}


def parse_shape(text: str) -> tuple[str, tuple[tuple[int, ...], ...]]:
    label, _, numbers = text.rpartition("=")
    try:
        if not label:
            raise ValueError("no input is named")
        return label, parse_extents(numbers)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no shape of an input: examples are data=1,3,224,224, and ids=1,16/64/128 for three",
            param_hint="--shape",
        ) from None
