"""Commands of ``wmsched``: train, tune, score, eval, finetune, info. Heavy imports wait for a command."""

from __future__ import annotations

import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from typer.core import TyperGroup

from wmsched.base.console import say
from wmsched.cli.compile import compile_
from wmsched.cli.device import device
from wmsched.cli.quality import BUNDLE, evaluate, finetune, short
from wmsched.cli.report import report
from wmsched.cli.tune import tune
from wmsched.graph.command import app as graph_app

MAX_HELP = 200  # characters of a command's sentence in --help


class _Commands(TyperGroup):
    """Group whose --help has whole sentences; Click cuts them to a line each."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the first sentence of its help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(MAX_HELP)) for name, one in commands if one])


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # with rich --help takes twice as long
    cls=_Commands,
    help="A pretrained cost model for TVM's schedule search.",
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
    dataset: Annotated[Path, typer.Option("--data", help="Dataset directory of wmsched-data build.")],
    out: Annotated[Path, typer.Option(help="Bundle folder to write; checkpoints go to OUT.training.")],
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Time limit for encoder and transition together.")
    ] = None,
    encoder_steps: Annotated[int | None, typer.Option(min=1, help="Encoder batches.")] = None,
    transition_steps: Annotated[int | None, typer.Option(min=1, help="Transition batches.")] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="A transformers name or path (learning rate 2e-5); default: a small encoder."),
    ] = None,
    models: Annotated[int | None, typer.Option(min=1, help="Rankers in the ensemble, one a seed.")] = None,
    ranker: Annotated[
        str,
        typer.Option(help="Kind of ranker: trees, or a plug-in's (benchmarks.rankers: attention, latent)."),
    ] = "trees",
    state: Annotated[
        str, typer.Option(help="Program embedding the ranker reads: predicted, initial, none.")
    ] = "predicted",
    phi: Annotated[bool, typer.Option("--phi/--no-phi", help="Give the ranker the action features.")] = True,
    objective: Annotated[
        str | None,
        typer.Option(
            help="Objective of the trees: rank:ndcg, rank:pairwise or reg:squarederror; several joined by "
            "+ have their margins averaged; default: all three."
        ),
    ] = None,
    parts_of: Annotated[
        str,
        typer.Option(help="A bundle's name or folder: reuse its encoder and transition.", show_default=False),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    keep_disturbed: Annotated[
        bool,
        typer.Option("--keep-disturbed", help="Keep records that a noise check marked as disturbed."),
    ] = False,
    external_memory: Annotated[
        bool | None,
        typer.Option(
            "--external-memory/--in-memory",
            help="Keep the ranker's rows on disk; default: if they do not fit in memory.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a bundle from a dataset; the same command resumes an interrupted run."""
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
        values = (f"{key} {short(value)}" for key, value in line.items())
        say(console, f"{part}: {', '.join(values)}")

    try:
        run(options, log=log)
    except KeyboardInterrupt:
        print("wmsched: stopped; the same command resumes from the last checkpoint", file=sys.stderr)
        raise typer.Exit(130) from None
    say(console, f"the bundle is in {out}")


app.command("compile")(compile_)
app.command()(tune)
app.command()(report)
app.command()(device)


@app.command()
def score(
    log: Annotated[Path, typer.Argument(help="AutoScheduler log with the programs to rank.")],
    cost_model: Annotated[str, typer.Option(help="A bundle's name or folder.")] = BUNDLE,
    workloads: Annotated[
        Path | None,
        typer.Option(help="JSON workload file with compute DAGs of tasks outside the benchmark."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write line, task, score, rank as JSON lines.")] = None,
) -> None:
    """Rank the programs of a log; compare with measured times, if any."""
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
    # The numbers take 65 characters; a narrow console shortens only the names.
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=max(12, console.width - 66))
    headings = ("top1", "top5", "pairwise", "tau")
    for heading in ("programs", "measured", *headings, "best line"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=max(6, len(heading)))
    tasks = []
    place: AbstractContextManager[IO[bytes] | None] = nullcontext() if out is None else atomic_open(out)
    with place as file:  # opened first, so an unwritable file fails before scoring
        for task in score_log(log, WorldModel.from_pretrained(cost_model), workloads=workloads, bad=bad):
            quality = task.quality()
            measured = int((task.seconds == task.seconds).sum())
            table.add_row(
                Text(task.name if task.known else f"* {task.name}"),  # Text: a key's brackets would be markup
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
    bundle: Annotated[str | None, typer.Argument(help="A bundle's name or folder; none: list all.")] = None,
) -> None:
    """Print a bundle's data, training metrics and versions; or list the shipped bundles."""
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
    """Install a TVM that has AutoScheduler in a folder of its own; changes no other package."""
    from wmsched.toolchain.install import WHEEL, install
    from wmsched.toolchain.resolve import default_folder

    where, fresh = install(folder)
    print(f"AutoScheduler's TVM ({WHEEL}) {'installed in' if fresh else 'is already in'} {where}")
    if where != default_folder():
        print(f"It is found when WMSCHED_TVM={where} is set, or when that folder is on PYTHONPATH.")


def main() -> int:
    """Entry point. Exit status 0; 1 for an error, printed in one line; 2 for wrong usage; 130 if
    interrupted."""
    from wmsched.base.errors import WmschedError
    from wmsched.base.interrupt import end_as_interrupted

    end_as_interrupted()
    try:
        app()  # typer reports wrong usage and raises SystemExit
    except WmschedError as error:
        print(f"wmsched: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, a read-only folder
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"wmsched: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
