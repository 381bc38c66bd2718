"""``wmsched report``: where a tuned model's time goes. Imports nothing heavy until it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from wmsched.base.console import own_console, say
from wmsched.base.cores import limit_threads

PAGE = "report.html"


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that wmsched tune or wmsched compile wrote.")
    ],
    out: Annotated[
        Path | None, typer.Option(help=f"The page to write; default: {PAGE} in DIR.", show_default=False)
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the model is run and timed.")] = 5.0,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Time PyTorch and onnxruntime too, in turns, where they are here."),
    ] = False,
    shape: Annotated[
        str | None,
        typer.Option(
            help="Of a folder with several shapes: the one to report; default: each.", show_default=False
        ),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print the functions here; write no page.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON; write no page.")] = False,
) -> None:
    """Show where a tuned model's time goes, function by function, on one page of HTML."""
    from wmsched.report.report import make_report

    console = own_console()
    quiet = json_ and not text
    tell = (lambda line: None) if quiet else (lambda line: say(console, line))
    if held := limit_threads(os.environ):
        tell(held)
    for part in _folders(folder, shape):
        if part != folder:
            tell(f"\nshape {part.name}")
        found = make_report(part, seconds=seconds, compared=compare, tell=tell)
        if text:
            from wmsched.report.text import print_report

            print_report(console, found)
        elif json_:
            print(json.dumps(found, indent=1))
        else:
            from wmsched.base.files import atomic_open
            from wmsched.report.page import page
            from wmsched.report.text import print_report

            path = out if out is not None and part == folder else part / PAGE
            with atomic_open(path) as file:
                file.write(page(found).encode())
            print_report(console, found, most=10)
            say(console, f"\nthe page: {path}")


def _folders(folder: Path, shape: str | None) -> list[Path]:
    """The folders to report: one, or that of each shape.

    Raises
    ------
    typer.BadParameter
        The folder has no such shape.
    """
    from wmsched.tune.folder import shapes_of

    parts = [folder / one["folder"] for one in shapes_of(folder)]
    if shape is None:
        return parts or [folder]
    chosen = [part for part in parts if part.name == shape]
    if not chosen:
        names = ", ".join(part.name for part in parts) or "one shape alone, which needs no --shape"
        raise typer.BadParameter(f"{folder} has no shape {shape!r}; it has {names}", param_hint="--shape")
    return chosen
