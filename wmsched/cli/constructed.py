"""A construction as the command line runs it: ``wmsched compile``, and ``wmsched tune --trials 0``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from wmsched.base.console import say
from wmsched.cli.outcome import RUN, print_latencies, print_shapes, run_threads
from wmsched.tune import folder as tuned_folder
from wmsched.tune import options

if TYPE_CHECKING:
    from rich.console import Console


def construct(console: Console, out: Path, settings: dict[str, Any], *, how_to_run: bool = True) -> None:
    """Construct a model's library and print what came of it, and how to run it."""
    from wmsched.tune.construct_model import construct_model

    began = time.monotonic()
    asked = options.ModelOptions(out=out, **settings)
    try:
        if asked.variants:
            from wmsched.tune.shapes.construction import construct_shapes

            print_shapes(console, construct_shapes(asked, console=console), how_to_run=how_to_run)
            return
        found = construct_model(asked, console=console)
    except KeyboardInterrupt:
        print("wmsched: stopped; nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None
    _print_schedules(console, found, time.monotonic() - began)
    print_latencies(console, found)
    if not how_to_run:
        return
    say(
        console,
        RUN.format(
            library=str(found.library),
            folder=str(found.library.parent),
            device=found.device,
            model=tuned_folder.ABOUT,
            threads=run_threads(found.threads) if found.device == "cpu" else "",
        ),
    )


def _print_schedules(console: Console, found: Any, seconds: float) -> None:
    """How many functions got their schedule from where, and in how many seconds."""
    counts: dict[str, int] = {}
    for task in found.tasks:
        counts[task.how] = counts.get(task.how, 0) + 1
    parts = ", ".join(f"{count} {how}" for how, count in sorted(counts.items()))
    say(
        console,
        f"\n{len(found.tasks)} functions in {seconds:.0f} s: {parts or 'views alone'}; none was timed",
    )
