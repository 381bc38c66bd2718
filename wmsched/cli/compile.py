"""``wmsched compile``: a whole model in seconds, or after a search. Imports nothing heavy until it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from wmsched.base.console import own_console, say
from wmsched.base.cores import limit_threads
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
from wmsched.cli.tune import GRAPH_CHOICES, default_folder, parse_shapes, tune


def compile_(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A whole model as a file, .onnx or .pt2 (torch.export.save), or a benchmark's by name.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the library and report; default: MODEL.tuned.")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="An input's shape where the file leaves it open: data=1,3,224,224; or several: "
            "ids=1,16/64/128. Repeatable."
        ),
    ] = None,
    state: States = None,
    target: Annotated[str | None, typer.Option(help="Default: this machine's processor.")] = None,
    cost_model: Annotated[str | None, typer.Option(help="A bundle's name or folder.")] = None,
    finalists: Annotated[
        int, typer.Option(min=1, help="Constructed schedules of each function to time in the model; 1: none.")
    ] = 1,
    traversal: Annotated[
        str,
        typer.Option(help="How schedules are found: evolution, draw, gensor, gensor-words or learned."),
    ] = "evolution",
    choice: Annotated[
        str, typer.Option(help="Which of them is taken: first, smoothed, agreement or spread.")
    ] = "first",
    graph_choices: Annotated[int, typer.Option(min=1, help=GRAPH_CHOICES)] = 1,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Search so long, as wmsched tune does.")
    ] = None,
    trials: Annotated[int | None, typer.Option(min=0, help="Measure so many, as wmsched tune does.")] = None,
    winograd: Winograd = True,
    depthwise_kernels: DepthwiseKernels = True,
    product_kernels: ProductKernels = True,
    attention_kernels: AttentionKernels = True,
    bf16: Bfloat16 = False,
    half: Half = None,
    allow_different: Annotated[
        bool,
        typer.Option(
            "--allow-different",
            help="Go on where it computes something else here than in PyTorch or onnxruntime.",
        ),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="With a search: keep the records there are.")
    ] = False,
    how_to_run: Annotated[
        bool,
        typer.Option("--how-to-run/--no-how-to-run", help="Say at the end how the library is run."),
    ] = True,
) -> None:
    """Compile a model in seconds: every function gets the schedule that the cost model ranks first."""
    if minutes or trials:
        if (traversal, choice) != ("evolution", "first"):
            raise typer.BadParameter(
                "a search has its own: leave out --traversal and --choice, or the search"
            )
        tune(
            name,
            trials=trials or None,
            minutes=minutes,
            scheduler="meta",
            out=out,
            target=target,
            cost_model=cost_model,
            shape=shape,
            state=state,
            resume=resume,
            finalists=finalists if finalists > 1 else None,
            winograd=winograd,
            depthwise_kernels=depthwise_kernels,
            product_kernels=product_kernels,
            attention_kernels=attention_kernels,
            bf16=bf16,
            half=half,
            graph_choices=graph_choices if graph_choices > 1 else None,
            allow_different=allow_different or None,
        )
        return
    settings: dict[str, Any] = {
        "name": name,
        "target": target,
        "cost_model": cost_model,
        "finalists": finalists,
        "traversal": traversal,
        "choice": choice,
        "winograd": winograd,
        "depthwise_kernels": depthwise_kernels,
        "product_kernels": product_kernels,
        "attention_kernels": attention_kernels,
        "bf16": bf16,
        "half": half or "",
        "graph_choices": graph_choices,
        "allow_different": allow_different,
    }
    settings |= parse_shapes(shape or ()) | {"states": tuple(state or ())}
    console = own_console()
    if held := limit_threads(os.environ):
        say(console, held)
    construct(console, out or default_folder(name), settings, how_to_run=how_to_run)
