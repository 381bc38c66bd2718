"""The commands of `wmsched-data` that make datasets of datasets, logs of logs, or files about them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from wmsched.measure.buffer_offsets import PLACES

Root = Annotated[Path, typer.Argument(help="Directory of a dataset.")]
Out = Annotated[Path, typer.Option(help="Directory of the new dataset.")]
Logs = Annotated[Path, typer.Argument(help="Folder as `collect` makes it.")]
NewLogs = Annotated[Path, typer.Option(help="Folder of the new logs. A stopped run in it is gone on with.")]
Minutes = Annotated[float, typer.Option(min=0, help="Stop after so long; 0 for no limit.")]
Batch = Annotated[int, typer.Option(min=1, help="Schedules of a task at its turn.")]
Target = Annotated[str, typer.Option(help="TVM target; by default this machine's.")]
Places = Annotated[int, typer.Option(min=1, help="Sets of buffers that a program is timed on.")]
Timeout = Annotated[int, typer.Option(min=1, help="Seconds that a build, and a run, may take.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (
        merge,
        split,
        leaks,
        dedupe,
        migrate,
        card,
        export_logs,
        export_workloads,
        device,
        remeasure,
        vary,
    ):
        app.command()(command)


def merge(
    datasets: Annotated[list[Path], typer.Argument(help="Directories of datasets.")],
    out: Out,
) -> None:
    """Merge datasets. Records of one workload from different machines stay in rank groups of their own."""
    from data_builder.base.console import show_totals
    from data_builder.derive.merge import merge as run

    show_totals(run(datasets, out, lambda text: print(text, file=sys.stderr)), out)


def split(
    dataset: Root,
    out: Annotated[Path, typer.Option(help="Directory in which each part gets its own.")],
    parts: Annotated[
        str,
        typer.Option(help="Shares (train=0.8,test=0.2), or networks by name (test=a+b,train=rest)."),
    ] = "train=0.8,valid=0.1,test=0.1",
    by: Annotated[str, typer.Option(help="What is never divided: network or workload.")] = "network",
    seed: Annotated[int, typer.Option(help="Of the deal.")] = 0,
) -> None:
    """Split a dataset into parts that share no program; what would leak is refused."""
    from data_builder.derive.split import parse_parts
    from data_builder.derive.split import split as run

    for part, manifest in run(dataset, out, parse_parts(parts), by=by, seed=seed).items():
        totals = manifest["totals"]
        print(f"{out / part}: {totals['records']} records of {totals['workloads']} workloads")


def leaks(
    datasets: Annotated[list[Path], typer.Argument(help="Directories of datasets that must share nothing.")],
    by: Annotated[str, typer.Option(help="What they may not share: network (and workload), or workload.")] = (
        "network"
    ),
) -> None:
    """List what datasets share; exit 1 if there is anything."""
    from data_builder.derive.split import leaks as run

    found = list(run(datasets, networks=by == "network"))
    for line in found:
        print(line)
    if found:
        raise typer.Exit(1)
    print(f"{len(datasets)} datasets share no {by}")


def dedupe(
    dataset: Root,
    out: Out,
    keep: Annotated[
        str, typer.Option(help="Which measurement of a repeated schedule stays: first, best, median.")
    ] = "median",
) -> None:
    """Keep one record of each schedule."""
    from data_builder.base.console import show_totals
    from data_builder.derive.dedupe import dedupe as run

    show_totals(run(dataset, out, keep=keep), out)


def migrate(dataset: Root, out: Out) -> None:
    """Rewrite a dataset of an earlier format in today's."""
    from data_builder.base.console import show_totals
    from data_builder.derive.migrate import migrate as run

    show_totals(run(dataset, out), out)


def card(
    dataset: Root,
    name: Annotated[str, typer.Option(help="The dataset's name; by default its directory's.")] = "",
    license: Annotated[str, typer.Option(help="SPDX name of the data's licence.")] = "unknown",
    out: Annotated[Path | None, typer.Option(help="By default README.md in the dataset.")] = None,
) -> None:
    """Write the dataset card: what is in it, of what machines, how to load it (README.md, with metadata)."""
    from data_builder.base.store import write_bytes
    from data_builder.derive.card import card as text
    from wmsched.learn.data.dataset import Dataset

    path = out or dataset / "README.md"
    write_bytes(path, text(Dataset(dataset), name=name or dataset.resolve().name, license=license).encode())
    print(path)


def export_logs(
    dataset: Root,
    out: Annotated[Path, typer.Option(help="Directory of the logs.")],
    undisturbed: Annotated[
        bool,
        typer.Option("--undisturbed", help="Leave out what was measured while the machine was disturbed."),
    ] = False,
) -> None:
    """Write a dataset's records as AutoScheduler logs again, one a rank group, without what was left out."""
    from data_builder.derive.export_logs import export_logs as run

    totals = run(dataset, out, undisturbed=undisturbed)
    left = f", {totals['disturbed']} disturbed ones left out" if undisturbed else ""
    print(f"{out}: {totals['records']} records in {totals['logs']} logs{left}")


def export_workloads(
    sources: Annotated[
        list[str],
        typer.Argument(help="Pickles of search tasks, folders of them (network_info), JSON files, or 'zoo'."),
    ],
    out: Annotated[Path, typer.Option(help="The JSON workloads file to write; .gz compresses it.")],
    trust_pickle: Annotated[
        bool,
        typer.Option("--trust-pickle", help="I trust where the files come from: loading them can run code."),
    ] = False,
) -> None:
    """Make one open JSON workloads file of TenSet's pickles, other workloads files and the zoo."""
    from data_builder.read.workloads import export, write_rows

    rows = export(sources, trust_pickle=trust_pickle)
    write_rows(out, rows)
    networks = {row["network"] for row in rows if row.get("network")}
    print(f"{out}: {len(rows)} workloads of {len(networks)} networks")


def device(
    tracker: Annotated[str, typer.Option(help="host:port of TVM's RPC tracker.")],
    key: Annotated[str, typer.Option(help="Name under which devices of this kind are asked for.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, help="Port to listen on; 0 takes a free one.")] = 0,
) -> None:
    """Make this machine a device that `collect --rpc` measures on."""
    from data_builder.collect.device import serve

    serve(tracker, key, host=host, port=port)


def remeasure(
    logs: Logs,
    out: NewLogs,
    share: Annotated[
        float, typer.Option(help="Of each log's records, the fastest that are timed again; in (0, 1].")
    ] = 1.0,
    minutes: Minutes = 0.0,
    batch: Batch = 16,
    target: Target = "",
    places: Places = PLACES,
    timeout: Timeout = 15,
) -> None:
    """Time the fastest schedules of AutoScheduler's logs again on this machine, and write logs of the better
    times."""
    from data_builder.base.console import CollectReport
    from data_builder.collect.measure import MeasureOptions
    from data_builder.collect.remeasure import RemeasureOptions
    from data_builder.collect.remeasure import remeasure as run

    how = MeasureOptions(places=places, build_timeout=timeout, run_timeout=timeout)
    options = RemeasureOptions(share=share, minutes=minutes, batch=batch, target=target, measure=how)
    with CollectReport() as report:
        counts = run(logs, out, options, report)
    print(
        f"{out}: {counts['records']} records of {counts['tasks']} tasks, {counts['measured']} timed again, "
        f"{counts['failed']} of these failed and keep their time; {counts['unfinished']} tasks are unfinished"
    )


def vary(
    logs: Logs,
    out: NewLogs,
    each: Annotated[int, typer.Option(min=1, help="Variants of a task, at most.")] = 9,
    best: Annotated[int, typer.Option(min=1, help="Of each log's records, the fastest that are varied.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    minutes: Minutes = 0.0,
    batch: Batch = 9,
    target: Target = "",
    places: Places = PLACES,
    timeout: Timeout = 15,
) -> None:
    """Time other register tiles of the fastest schedules of AutoScheduler's logs: what logs of a model's own
    choices lack."""
    from data_builder.base.console import CollectReport
    from data_builder.collect.measure import MeasureOptions
    from data_builder.collect.remeasure import RemeasureOptions
    from data_builder.collect.retile import VaryOptions
    from data_builder.collect.retile import vary as run

    how = MeasureOptions(places=places, build_timeout=timeout, run_timeout=timeout)
    timing = RemeasureOptions(minutes=minutes, batch=batch, target=target, measure=how)
    with CollectReport() as report:
        counts = run(logs, out, VaryOptions(each=each, best=best, seed=seed), timing, report)
    print(
        f"{out}: {counts['records']} records of {counts['tasks']} tasks, {counts['failed']} of these failed; "
        f"{counts['unfinished']} tasks are unfinished"
    )
