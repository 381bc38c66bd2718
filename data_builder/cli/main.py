"""`wmsched-data`: make, inspect and check datasets. Heavy imports wait until a command runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from data_builder.cli import derive, graphs
from wmsched.base.cores import limit_threads
from wmsched.measure.buffer_offsets import PLACES

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Make, inspect and check datasets of measured schedules.",
)


@app.command()
def build(
    logs: Annotated[
        list[str],
        typer.Argument(
            help="Tuning logs or MetaSchedule databases: files, directories, - for standard input."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="OUT", help="Directory of the dataset. A stopped build in it is gone on with."),
    ],
    workloads: Annotated[
        Path | None,
        typer.Option(help="JSON file of workloads with their compute DAGs; without it, no states."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    states_per_workload: Annotated[
        int,
        typer.Option(min=0, help="Records of each workload whose states are kept, spread evenly; 0 for all."),
    ] = 12,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Leave out the workloads of this file, or 'zoo' for the benchmark's. Repeatable."),
    ] = None,
    drop_aliased: Annotated[
        bool,
        typer.Option(
            "--drop-aliased",
            help="Leave out records of programs that TVM 0.16's wheel, unmended, may have compiled wrong.",
        ),
    ] = False,
    dask: Annotated[
        str, typer.Option(help="Replay on the workers of this Dask scheduler; they share --out.")
    ] = "",
    stall_seconds: Annotated[
        float, typer.Option(min=1, help="A worker silent for so long counts as hung and is replaced.")
    ] = 300.0,
) -> None:
    """Turn tuning logs (TenSet's format) into trajectories: every record's steps, states and measured
    time."""
    from data_builder.base.console import ConsoleReport, show_totals
    from data_builder.build.build import build as run
    from data_builder.build.plan import BuildOptions
    from wmsched import zoo

    options = BuildOptions(
        workloads=workloads,
        states_per_workload=states_per_workload,
        jobs=jobs,
        stall_seconds=stall_seconds,
        dask=dask,
        drop_aliased=drop_aliased,
        exclude=frozenset(key for source in exclude or () for row in _rows(source) for key in zoo.keys(row)),
    )
    with ConsoleReport() as report:
        manifest = run(logs, out, options, report)
    show_totals(manifest, out)


@app.command()
def collect(
    workloads: Annotated[
        str,
        typer.Option(
            help="JSON workloads file, or 'zoo' for the benchmark's own tasks; for --scheduler meta 'train', "
            "this project's programs."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory of the logs. A stopped run in it is gone on with.")],
    trials: Annotated[int, typer.Option(min=1, help="Records that each task is to have.")] = 40,
    cost_model: Annotated[
        str,
        typer.Option(help="What guides: none, a bundle's name or folder; xgb (AutoScheduler alone)."),
    ] = "none",
    tasks: Annotated[
        str,
        typer.Option(help="Which: all, ids (0,4,10-20), log, nolog, or part of a network's or task's name."),
    ] = "all",
    scheduler: Annotated[
        str, typer.Option(help="Whose schedules: ansor, or meta (MetaSchedule; --workloads FILE or 'train').")
    ] = "ansor",
    mix: Annotated[str, typer.Option(help="Parts of random and guided schedules.")] = "28:12",
    minutes: Annotated[float, typer.Option(min=0, help="Stop after so long; 0 for no limit.")] = 0.0,
    batch: Annotated[int, typer.Option(min=1, help="Schedules of a task at its turn.")] = 20,
    target: Annotated[str, typer.Option(help="TVM target; by default this machine's.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    min_repeat_ms: Annotated[
        int, typer.Option(min=1, help="Each timing repeats for at least so long; without a cache flush.")
    ] = 60,
    repeat: Annotated[int, typer.Option(min=1, help="Timings of each schedule.")] = 1,
    places: Annotated[
        int, typer.Option(min=1, help="Sets of buffers that a program is timed on here.")
    ] = PLACES,
    timeout: Annotated[int, typer.Option(min=1, help="Seconds that a build, and a run, may take.")] = 15,
    rpc: Annotated[str, typer.Option(help="host:port of TVM's RPC tracker: measure on its devices.")] = "",
    key: Annotated[str, typer.Option(help="Name of the devices at the tracker.")] = "",
    cores: Annotated[str, typer.Option(help="Run programs on these cores only, such as 0,1.")] = "",
    cache_flush: Annotated[bool, typer.Option(help="Flush the caches before each timing.")] = True,
    noise_check: Annotated[
        bool,
        typer.Option(
            "--noise-check", help="Measure a reference program between batches; a build marks records."
        ),
    ] = False,
) -> None:
    """Sample schedules, measure them here or on remote devices, append them to logs in TenSet's format."""
    from data_builder.base.console import CollectReport
    from data_builder.collect.collect import CollectOptions, select
    from data_builder.collect.collect import collect as run
    from data_builder.collect.measure import MeasureOptions

    parts = mix.split(":")
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or not any(map(int, parts)):
        raise typer.BadParameter(f"{mix!r} is not two numbers such as 28:12", param_hint="--mix")
    if bool(rpc) != bool(key):
        raise typer.BadParameter("needs both --rpc host:port and --key", param_hint="--rpc")
    if rpc and not target:
        raise typer.BadParameter(
            "remote devices need it: this machine's is not theirs", param_hint="--target"
        )
    if not all(part.strip().isdigit() for part in cores.split(",") if cores):
        raise typer.BadParameter(f"{cores!r} is not a list of numbers such as 0,1", param_hint="--cores")
    options = CollectOptions(
        trials=trials,
        mix=(int(parts[0]), int(parts[1])),
        cost_model=cost_model,
        minutes=minutes,
        batch=batch,
        target=target,
        seed=seed,
        measure=MeasureOptions(
            min_repeat_ms=min_repeat_ms,
            repeat=repeat,
            places=places,
            build_timeout=timeout,
            run_timeout=timeout,
            rpc=rpc,
            key=key,
            cores=tuple(int(part) for part in cores.split(",") if cores),
            cache_flush=cache_flush,
        ),
        noise_check=noise_check,
    )
    if not rpc and (held := limit_threads(os.environ)):
        print(held)
    if scheduler not in ("ansor", "meta"):
        raise typer.BadParameter(f"{scheduler!r} is neither ansor nor meta", param_hint="--scheduler")
    if scheduler == "meta":
        for name, given in (("--rpc", rpc), ("--noise-check", noise_check)):
            if given:
                raise typer.BadParameter(
                    "is AutoScheduler's: --scheduler meta measures here, without a reference program",
                    param_hint=name,
                )
        from data_builder.metaschedule.command import collect as collect_meta

        return collect_meta(workloads, tasks, out, options)
    with CollectReport() as report:
        counts = run(select(_rows(workloads), tasks), out, options, report)
    print(
        f"{out}: {counts['records']} records of {counts['tasks']} tasks, {counts['measured']} measured now, "
        f"{counts['failed']} of these failed; {counts['unfinished']} tasks have fewer than {trials}"
    )


@app.command()
def stats(
    dataset: Annotated[Path, typer.Argument(help="Directory of a dataset.")],
    png: Annotated[Path | None, typer.Option(help="Also draw a picture: spread, errors, steps.")] = None,
) -> None:
    """Show what is in a dataset: records, errors by kind, steps, latency spread and states of each
    workload."""
    from data_builder.cli.stats_table import show_stats
    from data_builder.derive.stats import workload_stats
    from wmsched.learn.data.dataset import Dataset

    rows = list(workload_stats(Dataset(dataset)))
    show_stats(rows)
    if png is not None:
        from data_builder.derive.pictures import draw

        draw(rows, png, title=dataset.name)
        print(f"picture: {png}")


@app.command()
def validate(dataset: Annotated[Path, typer.Argument(help="Directory of a dataset.")]) -> None:
    """Check a dataset's hashes, counts, references and schema; list every problem, exit 1 if there is one."""
    from data_builder.derive.validate import problems

    found = 0
    for problem in problems(dataset):
        print(problem)
        found += 1
    if found:
        print(f"{found} problems", file=sys.stderr)
        raise typer.Exit(1)
    print(f"{dataset}: sound")


def _rows(source: str) -> list[dict[str, Any]]:
    """Rows of a workloads file, or of the benchmark."""
    if source == "zoo":
        from wmsched import zoo

        return [{**row, "id": place} for place, row in enumerate(zoo.rows())]
    from data_builder.read.workloads import read_rows

    return list(read_rows(Path(source)).values())


derive.register(app)
graphs.register(app)


def main() -> int:
    """Entry point: exit status 0; 1 for an error, told in one line; 130 when interrupted."""
    from wmsched.base.errors import WmschedError
    from wmsched.base.interrupt import end_as_interrupted

    end_as_interrupted()
    try:
        status = app(standalone_mode=False)
        return status if isinstance(status, int) else 0
    except WmschedError as error:
        print(f"wmsched-data: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, a file that went away
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"wmsched-data: {error.strerror or error}{where}; what was finished is kept, "
            "mend that and run the same command again",
            file=sys.stderr,
        )
        return 1
    except (KeyboardInterrupt, typer.Abort):
        print("wmsched-data: stopped; run the same command again to go on", file=sys.stderr)
        return 130
    except typer.Exit as stop:
        return int(stop.exit_code)
    except Exception as error:
        # Usage errors. typer has taken click in, so their class is another one from version to version.
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        error.show()
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
