"""Commands ``wmsched eval`` and ``wmsched finetune``. Heavy imports wait for a command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

BUNDLE = "x86-avx512"


def evaluate(
    dataset: Annotated[Path, typer.Option("--data", help="Dataset directory of wmsched-data build.")],
    bundle: Annotated[str, typer.Option(help="A bundle's name or folder.")] = BUNDLE,
    by: Annotated[str, typer.Option(help="Unit of a fold: network or workload.")] = "network",
    folds: Annotated[int, typer.Option(min=3, help="Cross-validation folds.")] = 5,
    also: Annotated[
        str, typer.Option(help="Another kind of ranker to compare, such as attention.", show_default=False)
    ] = "",
    states: Annotated[
        int,
        typer.Option(min=0, help="Trajectories of each workload that check encoder and transition; 0: none."),
    ] = 2,
    noise: Annotated[
        float | None,
        typer.Option(min=0, help="Standard deviation of log seconds; default: estimated from the data."),
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads for the trees; 0: all cores.")] = 0,
    json_out: Annotated[Path | None, typer.Option("--json", help="JSON file for the result.")] = None,
    md: Annotated[Path | None, typer.Option(help="Markdown file for the tables.")] = None,
) -> None:
    """Evaluate how well a bundle's parts rank programs of held-out networks (or workloads)."""
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
    result = run(options, log=_print_progress)
    text = markdown(result)
    print(text)  # first, so an unwritable file does not lose it
    if json_out is not None:
        write_json(result, json_out)
    if md is not None:
        md.write_text(text, encoding="utf-8")


def finetune(
    dataset: Annotated[Path, typer.Option("--data", help="Dataset of the new machine's records.")],
    bundle: Annotated[str, typer.Option(help="Bundle to adapt: its name or folder.")] = BUNDLE,
    out: Annotated[Path | None, typer.Option(help="Folder of the new bundle.")] = None,
    old: Annotated[
        Path | None, typer.Option(help="Dataset that the bundle was trained on; default: none.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="continue, mix (needs --old) or scratch; default: mix with --old, else continue."),
    ] = None,
    weight: Annotated[int, typer.Option(min=1, help="Repetitions of each new workload in mix.")] = 4,
    records: Annotated[int | None, typer.Option(min=2, help="Maximum number of new records.")] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Print the learning curve of each method; write no bundle.")
    ] = False,
    draws: Annotated[
        int, typer.Option(min=1, help="Random draws of records at each point of the curve.")
    ] = 3,
    json_out: Annotated[Path | None, typer.Option("--json", help="JSON file for the curve.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the workloads' order.")] = 0,
) -> None:
    """Adapt a bundle to another machine with that machine's records.

    A few hundred records gain little on processors like those in the training data; thousands gain more.
    """
    from wmsched.learn.training.adaptation import METHODS
    from wmsched.learn.training.finetune import FinetuneOptions
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
        run(options, log=_print_progress)
        print(f"the bundle is in {out}")
        return
    from wmsched.learn.data.inputs import named
    from wmsched.learn.evaluate.evaluate import write_json
    from wmsched.learn.training.learning_curve import curve_markdown, learning_curve

    lines = learning_curve(options, draws=draws, log=_print_progress)
    print(curve_markdown(lines))
    if json_out is not None:
        write_json({"bundle": bundle, "dataset": named(dataset).name, "curve": lines}, json_out)


def _print_progress(line: dict[str, Any]) -> None:
    """Print progress to stderr, so that stdout can be piped."""
    print(", ".join(f"{key} {short(value)}" for key, value in line.items()), file=sys.stderr, flush=True)


def short(value: Any) -> str:
    """Format a value of a progress line."""
    if isinstance(value, dict):
        return " ".join(f"{key} {short(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(short, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
