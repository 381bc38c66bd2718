"""``wmsched``: train, tune, score, eval, finetune, info. Imports nothing heavy until a command runs."""

from __future__ import annotations

import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from wmsched.base.console import say
from wmsched.cli.compile import compile_
from wmsched.cli.quality import BUNDLE, evaluate, finetune, short
from wmsched.cli.tune import tune
from wmsched.graph.command import app as graph_app

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A learned evaluator of tensor programs for TVM's schedule search.",
)


def _version(asked: bool) -> None:
    if asked:
        from wmsched import __version__

        print(f"wmsched {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """A learned evaluator of tensor programs for TVM's schedule search."""


@app.command()
def train(
    dataset: Annotated[Path, typer.Option("--data", help="Dataset directory that wmsched-data build wrote.")],
    out: Annotated[Path, typer.Option(help="Folder of the bundle; checkpoints are in OUT.training.")],
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Time for encoder and transition together, at most.")
    ] = None,
    encoder_steps: Annotated[int | None, typer.Option(min=1, help="Batches of the encoder.")] = None,
    transition_steps: Annotated[int | None, typer.Option(min=1, help="Batches of the transition.")] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="A transformers name or path, trained at a rate of 2e-5; default: a small one."),
    ] = None,
    models: Annotated[int | None, typer.Option(min=1, help="Rankers whose margins are averaged.")] = None,
    ranker: Annotated[
        str,
        typer.Option(
            help="What ranks: trees, or a kind that a plug-in adds (benchmarks.rankers: attention, latent)."
        ),
    ] = "trees",
    state: Annotated[
        str, typer.Option(help="What the ranker gets of the state: predicted, initial, none.")
    ] = "predicted",
    phi: Annotated[bool, typer.Option("--phi/--no-phi", help="Give the ranker the action features.")] = True,
    objective: Annotated[
        str | None,
        typer.Option(
            help="Of the trees: rank:ndcg, rank:pairwise or reg:squarederror; several by +, whose margins "
            "are averaged; default: all three."
        ),
    ] = None,
    parts_of: Annotated[
        str,
        typer.Option(
            help="A bundle's name or folder: take its encoder and transition as they are.", show_default=False
        ),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of everything.")] = 0,
    keep_disturbed: Annotated[
        bool,
        typer.Option("--keep-disturbed", help="Rank also by times that a noise check marked as disturbed."),
    ] = False,
    external_memory: Annotated[
        bool | None,
        typer.Option(
            "--external-memory/--in-memory",
            help="Keep the ranker's rows on disk; default: where memory would not hold them.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a bundle from a dataset; the same command again goes on where it was stopped."""
    from dataclasses import replace

    from rich.console import Console

    from wmsched.learn.training.train import TrainOptions
    from wmsched.learn.training.train import train as run
    from wmsched.learn.training.train_encoder import PRETRAINED_RATE
    from wmsched.model.ranker_kinds import kinds
    from wmsched.model.rows import STATES

    def given(**settings: Any) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if value is not None}

    for option, value, known in (("--ranker", ranker, kinds()), ("--state", state, STATES)):
        if value not in known:
            raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}", param_hint=option)
    base = TrainOptions(dataset=dataset, out=out)
    try:
        trees = replace(base.ranker, **given(n_models=models, objective=objective, seed=seed))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--objective") from error
    options = replace(
        base,
        state=state,
        phi=phi,
        kind=ranker,
        command=shlex.join(["wmsched", *sys.argv[1:]]),
        disturbed=keep_disturbed,
        external=external_memory,
        minutes=minutes,
        encoder=replace(base.encoder, **given(backbone=backbone)),
        encoder_training=replace(
            base.encoder_training,
            **given(
                steps=encoder_steps, seed=seed, learning_rate=None if backbone is None else PRETRAINED_RATE
            ),
        ),
        transition_training=replace(base.transition_training, **given(steps=transition_steps, seed=seed)),
        ranker=trees,
        parts_of=parts_of,
    )
    console = Console()

    def log(part: str, line: dict[str, Any]) -> None:
        told = (f"{key} {short(value)}" for key, value in line.items())
        say(console, f"{part}: {', '.join(told)}")

    try:
        run(options, log=log)
    except KeyboardInterrupt:
        print("wmsched: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        raise typer.Exit(130) from None
    say(console, f"the bundle is in {out}")


app.command("compile")(compile_)
app.command()(tune)


@app.command()
def score(
    log: Annotated[Path, typer.Argument(help="AutoScheduler log whose programs are to be ranked.")],
    cost_model: Annotated[str, typer.Option(help="A bundle's name or folder.")] = BUNDLE,
    workloads: Annotated[
        Path | None,
        typer.Option(help="JSON workload file with the compute DAGs of tasks outside the benchmark."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write line, task, score, rank as JSON lines.")] = None,
) -> None:
    """Rank the programs of a log; where they have been measured, say how good the ranking is."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from wmsched.base.files import atomic_open
    from wmsched.cli.score import score_log, write_scores
    from wmsched.model.world_model import WorldModel

    for read in (log, workloads):
        if out is not None and read is not None and out.exists() and read.exists() and out.samefile(read):
            raise typer.BadParameter(f"{out} is read: name another file", param_hint="--out")
    console, bad = Console(), list[str]()
    table = Table(box=None, pad_edge=False)
    # The numbers take 65 characters; a narrow console shortens the names and nothing else.
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=max(12, console.width - 66))
    headings = ("top1", "top5", "pairwise", "tau")
    for heading in ("programs", "measured", *headings, "best line"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=max(6, len(heading)))
    tasks = []
    place: AbstractContextManager[IO[bytes] | None] = nullcontext() if out is None else atomic_open(out)
    with place as file:  # opened now, and not after everything has been scored
        for task in score_log(log, WorldModel.from_pretrained(cost_model), workloads=workloads, bad=bad):
            quality = task.quality()
            measured = int((task.seconds == task.seconds).sum())
            table.add_row(
                Text(task.name if task.known else f"* {task.name}"),  # a key has brackets, which are markup
                str(len(task.lines)),
                str(measured),
                *(f"{quality[heading]:.3f}" if heading in quality else "-" for heading in headings),
                str(task.lines[int(task.scores.argmax())]),
            )
            tasks.append(task)
        console.print(table)
        if not all(task.known for task in tasks):
            console.print("\n* no compute DAG in the benchmark or --workloads: ranked by its actions alone")
        if file is not None:
            write_scores(tasks, file)
    if bad:
        console.print(f"{len(bad)} lines are no records; the first: {bad[0]}", highlight=False, markup=False)


app.command("eval")(evaluate)
app.command()(finetune)
app.add_typer(graph_app, name="graph")


@app.command()
def info(
    bundle: Annotated[str | None, typer.Argument(help="A bundle's name or folder; none: list them.")] = None,
) -> None:
    """Say what a bundle is: its data, its training metrics, its versions; or list the bundles there are."""
    from rich.console import Console

    from wmsched.model.bundles import describe, shipped

    console = Console()
    if bundle is None:
        names = shipped()
        console.print("\n".join(names) if names else "no bundle is shipped with this copy of wmsched")
        return
    for name, value in describe(bundle):
        say(console, f"{name:<28} {value}")


@app.command("setup-tvm")
def setup_tvm(
    folder: Annotated[Path | None, typer.Option(help="Default: inside the virtual environment.")] = None,
) -> None:
    """Put a TVM that has AutoScheduler beside your packages, once; touches no other package."""
    from wmsched.toolchain.install import WHEEL, install
    from wmsched.toolchain.resolve import default_folder

    where, fresh = install(folder)
    print(f"AutoScheduler's TVM ({WHEEL}) {'installed in' if fresh else 'is already in'} {where}")
    if where != default_folder():
        print(f"It is found when WMSCHED_TVM={where} is set, or when that folder is on PYTHONPATH.")


def main() -> int:
    """Entry point: exit status 0; 1 for an error, told in one line; 2 for a wrong call; 130 when
    interrupted."""
    from wmsched.base.errors import WmschedError
    from wmsched.base.interrupt import end_as_interrupted

    end_as_interrupted()
    try:
        app()  # typer itself tells of a wrong call, and leaves by SystemExit
    except WmschedError as error:
        print(f"wmsched: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, a folder that may not be written
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"wmsched: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
