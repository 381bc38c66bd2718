"""``wmsched tune``. Imports nothing heavy until a command runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wmsched.base.console import own_console, say
from wmsched.base.cores import idle_cores, limit_threads
from wmsched.cli.constructed import construct
from wmsched.cli.outcome import BUILD, _print_left, _print_tasks, _print_whole
from wmsched.measure.buffer_offsets import PLACES
from wmsched.relax.importers.load import is_file
from wmsched.tune import options

if TYPE_CHECKING:
    from rich.console import Console

ANSOR, META = "ansor", "meta"
ONLY = {  # options that one of the two has alone, with what they are when they are not given
    ANSOR: ("log", "rounds", "workloads"),
    META: ("shape", "out", "pack-weights", "channels-last", "wide-fusion", "cold-caches", "finalists"),
}

OTHER_FILES = (".pt", ".pth", ".ts", ".tflite", ".pb", ".h5", ".keras", ".safetensors", ".mlir", ".json")


def tune(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A whole model as a file, .onnx or .pt2 (torch.export.save); or a benchmark task, type or "
            'model: "resnet50/6", "conv2d-relu", "gpt2".',
        ),
    ],
    trials: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Measurements in all; default: 16 for each task (64 at least of AutoScheduler's), with "
            "--minutes without limit. 0: none, as wmsched compile does.",
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Of search, to the end of a round.")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="ansor: AutoScheduler, tasks. meta: MetaSchedule, whole models. Default: by what MODEL is."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of a whole model's database, library and report; default: MODEL.tuned."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="AutoScheduler log that the records go to; default: tuning.json."),
    ] = None,
    cost_model: Annotated[
        str | None,
        typer.Option(
            help="A bundle's name or folder, or the scheduler's own: ansor or xgb, random. Default: the best "
            "bundle there is."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the records there are.")] = False,
    online: Annotated[bool, typer.Option("--online", help="Let the model learn from this run.")] = False,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rounds of search for each task's share; default: four, less where one would have less than "
            "16 measurements, more where it would have over 64.",
        ),
    ] = None,
    diversity: Annotated[
        float, typer.Option(min=0, help="How much alike candidates discount each other; 0: not at all.")
    ] = options.DIVERSITY,
    target: Annotated[str | None, typer.Option(help="Default: this machine's processor.")] = None,
    workloads: Annotated[
        Path | None,
        typer.Option(help="JSON workload file to take MODEL (an id, desc, network or all) from."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="An input's shape where the file leaves it open: data=1,3,224,224. Repeatable."),
    ] = None,
    places: Annotated[
        int, typer.Option(min=1, help="Sets of buffers that a candidate is timed on, on a processor.")
    ] = PLACES,
    vector_math: Annotated[
        bool,
        typer.Option(
            "--vector-math/--no-vector-math",
            help="On a processor: exp, tanh, erf and log in vectors, in place of TVM's calls of the C "
            "library for each element; sums along rows and plain loops in vectors; prefetches in products.",
        ),
    ] = True,
    pack_weights: Annotated[
        bool | None,
        typer.Option(
            "--pack-weights/--no-pack-weights",
            help="Let schedules lay a whole model's weights out anew, on a processor. Default: they may.",
        ),
    ] = None,
    channels_last: Annotated[
        bool | None,
        typer.Option(
            "--channels-last/--no-channels-last",
            help="Convolutions of a whole model with their channels last, on a processor. Default: so.",
        ),
    ] = None,
    wide_fusion: Annotated[
        bool | None,
        typer.Option(
            "--wide-fusion/--no-wide-fusion",
            help="Fuse a whole model's products with what follows behind reshapes too, on a processor. "
            "Default: so.",
        ),
    ] = None,
    cold_caches: Annotated[
        bool | None,
        typer.Option(
            "--cold-caches/--no-cold-caches",
            help="Time each call of a whole model's candidates after a flush of the caches, on a processor. "
            "Default: so.",
        ),
    ] = None,
    finalists: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Schedules of each function that are timed in the whole model at the end, on a processor; "
            "1: none, the fastest by itself is taken. Default: 4.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=1, help="Of the search.")] = None,
) -> None:
    """Tune with a pretrained cost model: tasks with AutoScheduler, whole models with MetaSchedule."""
    chosen = _scheduler(name, scheduler)
    given = {
        "log": log,
        "rounds": rounds,
        "workloads": workloads,
        "shape": shape or None,
        "out": out,
        "pack-weights": pack_weights,
        "channels-last": channels_last,
        "wide-fusion": wide_fusion,
        "cold-caches": cold_caches,
        "finalists": finalists,
    }
    other = META if chosen == ANSOR else ANSOR
    for option in ONLY[other]:
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
        shapes = dict(parse_shape(text) for text in shape or ())
        folder = out or Path(f"{Path(name).stem if is_file(name) else name}.tuned")
        builds = {
            "pack_weights": pack_weights,
            "channels_last": channels_last,
            "wide_fusion": wide_fusion,
            "cold_caches": cold_caches,
        }
        common |= {name: value is not False for name, value in builds.items()}
        common |= {"finalists": finalists} if finalists else {}
        if trials == 0:
            construct(
                console, folder, {"finalists": 1} | common | {"shapes": shapes, "cost_model": cost_model}
            )
            return
        _whole(console, folder, common | {"shapes": shapes, "cost_model": cost_model})
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
    from wmsched.tune.tune_tasks import tune as run

    start = time.monotonic()
    try:
        found = run(options.TuneOptions(**settings), console=console)
    except KeyboardInterrupt:
        print(f"wmsched: stopped; --resume goes on with what is in {log}", file=sys.stderr)
        raise typer.Exit(130) from None
    took = duration(time.monotonic() - start)
    say(console, f"\nbest in {log}, after {took}")
    _print_tasks(console, found)
    option, value = ("", "") if settings["vector_math"] else (", vector_math=False", "False")
    say(console, BUILD.format(log=str(log), option=option, value=value))


def _whole(console: Console, out: Path, settings: dict[str, Any]) -> None:
    from wmsched.tune.tune_model import tune_model

    try:
        found = tune_model(options.ModelOptions(out=out, **settings), console=console)
    except KeyboardInterrupt:
        print(f"wmsched: stopped; --resume goes on with what is in {out}", file=sys.stderr)
        raise typer.Exit(130) from None
    say(console, "")
    _print_tasks(console, found.tasks)
    _print_left(console, found.tasks)
    _print_whole(console, found)
    if not any(task.seconds > 0 for task in found.tasks):
        print("wmsched: no schedule of any task has run; what was said above tells why", file=sys.stderr)
        raise typer.Exit(1)


def _scheduler(name: str, wanted: str | None) -> str:
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
            f"{name} is a whole model, and those are tuned with --scheduler {META}", param_hint="--scheduler"
        )
    return wanted


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    label, _, numbers = text.rpartition("=")
    try:
        shape = tuple(int(number) for number in numbers.split(","))
    except ValueError:
        shape = ()
    if not label or not shape or min(shape) < 1:
        raise typer.BadParameter(
            f"{text!r} is no shape of an input: an example is data=1,3,224,224", param_hint="--shape"
        )
    return label, shape
