"""``wmsched report``: where a tuned model's time goes. Imports nothing heavy until it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from wmsched.base.console import own_console, say
from wmsched.base.cores import limit_threads


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that wmsched tune or wmsched compile wrote.")
    ],
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the model is run and timed.")] = 5.0,
    text: Annotated[bool, typer.Option("--text", help="Print the functions here.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
) -> None:
    """Show where a tuned model's time goes: each function's time in the model."""
    from wmsched.report.profiler import profile
    from wmsched.report.source import functions_of
    from wmsched.report.text import as_json, print_table
    from wmsched.tune.tuned_model import TunedModel

    console = own_console()
    if (held := limit_threads(os.environ)) and not json_:
        say(console, held)
    model = TunedModel(folder)
    functions, why = functions_of(folder, None if json_ else lambda line: say(console, line))
    found = profile(model, seconds=seconds, functions=functions)
    if json_:
        print(json.dumps(as_json(found), indent=1))
        return
    print_table(console, found)
    if why:
        say(console, f"operations are not known: {why}")
