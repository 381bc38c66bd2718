"""``wmsched eval`` and ``wmsched finetune``. Imports nothing heavy until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

BUNDLE = "x86-avx512"


def evaluate(
    dataset: Annotated[Path, typer.Option("--data", help="Dataset directory that wmsched-data build wrote.")],
    bundle: Annotated[str, typer.Option(help="A bundle's name or folder.")] = BUNDLE,
    by: Annotated[str, typer.Option(help="What a fold keeps together: network or workload.")] = "network",
    folds: Annotated[int, typer.Option(min=3, help="Parts that are held out in turn.")] = 5,
    also: Annotated[
        str, typer.Option(help="Compare another kind of ranker too, such as attention.", show_default=False)
    ] = "",
    states: Annotated[
        int,
        typer.Option(min=0, help="Trajectories of a workload to check encoder and transition on; 0: none."),
    ] = 2,
    noise: Annotated[
        float | None, typer.Option(min=0, help="Deviation of log seconds; default: from the data.")
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="Of the trees; 0: all cores.")] = 0,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result here.")] = None,
    md: Annotated[Path | None, typer.Option(help="Write the tables here.")] = None,
) -> None:
    """How well a bundle's parts rank programs of networks (or workloads) held out of their training."""
    from wmsched.learn.evaluate.evaluate import EvalOptions, write_json
    from wmsched.learn.evaluate.evaluate import evaluate as run
    from wmsched.learn.evaluate.report import markdown

    if by not in ("network", "workload"):
        raise typer.BadParameter(f"{by!r} is neither network nor workload", param_hint="--by")
    options = EvalOptions(
        dataset=dataset,
        bundle=bundle,
        by=by,
        folds=folds,
        also=also,
        states=states,
        sigma=noise,
        threads=threads,
    )
    result = run(options, log=_tell)
    text = markdown(result)
    print(text)  # first: a file that cannot be written must not take it along
    if json_out is not None:
        write_json(result, json_out)
    if md is not None:
        md.write_text(text, encoding="utf-8")


def finetune(
    dataset: Annotated[Path, typer.Option("--data", help="Dataset of the new machine's records.")],
    bundle: Annotated[str, typer.Option(help="What is adapted: a bundle's name or folder.")] = BUNDLE,
    out: Annotated[Path | None, typer.Option(help="Folder of the new bundle.")] = None,
    old: Annotated[
        Path | None, typer.Option(help="Dataset that the bundle was trained on; default: not at hand.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="continue, mix (needs --old) or scratch; default: mix with --old, else continue."),
    ] = None,
    weight: Annotated[int, typer.Option(min=1, help="How often mix repeats a new workload.")] = 4,
    records: Annotated[int | None, typer.Option(min=2, help="Use so many new records at most.")] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Print records against ranking for each method; write no bundle.")
    ] = False,
    draws: Annotated[int, typer.Option(min=1, help="Draws of records at each point of the curve.")] = 3,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the curve here.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of the workloads.")] = 0,
) -> None:
    """Adapt a bundle to another machine by its own records.

    On processors like those that it was trained on a few hundred gain little, thousands do.
    """
    from wmsched.learn.training.finetune import METHODS, FinetuneOptions
    from wmsched.learn.training.finetune import finetune as run

    if method is not None and method not in METHODS:
        raise typer.BadParameter(f"{method!r} is none of {', '.join(METHODS)}", param_hint="--method")
    if method == "mix" and old is None:
        raise typer.BadParameter("mix needs the dataset that the bundle was trained on", param_hint="--old")
    if out is None and not curve:
        raise typer.BadParameter("name the new bundle's folder, or ask for --curve", param_hint="--out")
    options = FinetuneOptions(
        bundle=bundle,
        dataset=dataset,
        out=out or Path(),
        method=method,
        old=old,
        weight=weight,
        records=records,
        seed=seed,
    )
    if not curve:
        run(options, log=_tell)
        print(f"the bundle is in {out}")
        return
    from wmsched.learn.data.inputs import named
    from wmsched.learn.evaluate.evaluate import write_json
    from wmsched.learn.training.learning_curve import curve_markdown, learning_curve

    lines = learning_curve(options, draws=draws, log=_tell)
    print(curve_markdown(lines))
    if json_out is not None:
        write_json({"bundle": bundle, "dataset": named(dataset).name, "curve": lines}, json_out)


def _tell(line: dict[str, Any]) -> None:
    """Progress goes to the error stream: what the command prints can be piped."""
    print(", ".join(f"{key} {short(value)}" for key, value in line.items()), file=sys.stderr, flush=True)


def short(value: Any) -> str:
    """A value of a progress line."""
    if isinstance(value, dict):
        return " ".join(f"{key} {short(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(short, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
