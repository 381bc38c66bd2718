"""`wmsched-data graphs`: seconds of small graphs as their choices go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(graphs)


def graphs(
    out: Annotated[
        Path, typer.Option(help="Folder of the files, one a graph. A stopped run in it is gone on with.")
    ],
    only: Annotated[
        str, typer.Option(help="Graphs or families, joined by commas; by default all. --list names them.")
    ] = "",
    generated: Annotated[int, typer.Option(min=0, help="Graphs drawn at random, beside real blocks.")] = 12,
    configurations: Annotated[
        int, typer.Option(min=2, help="Configurations of a graph, today's rules among them.")
    ] = 48,
    rounds: Annotated[int, typer.Option(min=3, help="Turns of each configuration in a timing.")] = 15,
    timings: Annotated[
        int, typer.Option(min=1, help="Timings of a graph, each in a process of its own: two tell the noise.")
    ] = 2,
    minutes: Annotated[float, typer.Option(min=0, help="Begin nothing after so long; 0 for no limit.")] = 0.0,
    build_only: Annotated[
        bool, typer.Option("--build-only", help="Time nothing: building needs no quiet machine.")
    ] = False,
    time_only: Annotated[
        bool, typer.Option("--time-only", help="Build nothing: time what --build-only has left.")
    ] = False,
    target: Annotated[str, typer.Option(help="TVM target; by default this machine's.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="Print the names and do nothing.")] = False,
) -> None:
    """Build and time configurations of small graphs; files in TpuGraphs' layout format (wmsched graph reads
    them)."""
    from data_builder.graphs.networks import family_of, names

    wanted = [one.strip() for one in only.split(",") if one.strip()]
    every = names(generated)
    known = {*every, *map(family_of, every)}
    if unknown := [one for one in wanted if one not in known]:
        raise typer.BadParameter(f"{unknown[0]!r} is no graph and no family: see --list", param_hint="--only")
    chosen = [name for name in every if not wanted or {name, family_of(name)} & {*wanted}]
    if list_:
        print("\n".join(chosen))
        return
    if build_only and time_only:
        raise typer.BadParameter("and --time-only leave nothing to do", param_hint="--build-only")
    from data_builder.base.console import CollectReport
    from data_builder.graphs.collect import GraphOptions, collect

    options = GraphOptions(
        configurations=configurations,
        rounds=rounds,
        timings=timings,
        minutes=minutes,
        build_only=build_only,
        time_only=time_only,
        target=target,
    )
    with CollectReport() as report:
        counts = collect(chosen, out, options, report)
    print(
        f"{out}: {counts['done']} of {len(chosen)} graphs are done, {counts['built']} built and not timed, "
        f"{counts['failed']} failed, {counts['left']} not begun"
    )
    if counts["failed"]:
        raise typer.Exit(1)
