"""`wmsched-data`: make, inspect and check datasets of measured schedules. Imports nothing heavy until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Make, inspect and check datasets of measured schedules.",
)


@app.command()
def build(
    logs: Annotated[list[str], typer.Argument(help="Tuning logs: files, directories, - for standard input.")],
    out: Annotated[
        Path, typer.Option(help="Directory of the dataset. A stopped build in it is gone on with.")
    ],
    workloads: Annotated[
        Optional[Path],
        typer.Option(help="JSON file of workloads with their compute DAGs; without it, no states."),  # noqa: UP007, UP045
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    states_per_workload: Annotated[
        int,
        typer.Option(min=0, help="Records of each workload whose states are kept, spread evenly; 0 for all."),
    ] = 12,
    stall_seconds: Annotated[
        float, typer.Option(min=1, help="A worker silent for so long counts as hung and is replaced.")
    ] = 300.0,
) -> None:
    """Turn tuning logs (TenSet's format) into trajectories: every record's steps, states and measured time."""
    from data_builder.build import BuildOptions
    from data_builder.build import build as run
    from data_builder.console import ConsoleReport, show_totals

    options = BuildOptions(
        workloads=workloads, states_per_workload=states_per_workload, jobs=jobs, stall_seconds=stall_seconds
    )
    with ConsoleReport() as report:
        manifest = run(logs, out, options, report)
    show_totals(manifest, out)


@app.command()
def stats(dataset: Annotated[Path, typer.Argument(help="Directory of a dataset.")]) -> None:
    """Show what is in a dataset: records, errors by kind, steps, latency spread and states of each workload."""
    from data_builder.console import show_stats
    from data_builder.stats import workload_stats
    from wmsched.dataset import Dataset

    show_stats(workload_stats(Dataset(dataset)))


@app.command()
def validate(dataset: Annotated[Path, typer.Argument(help="Directory of a dataset.")]) -> None:
    """Check a dataset's hashes, counts, references and schema; list every problem, exit 1 if there is one."""
    from data_builder.validate import problems

    found = 0
    for problem in problems(dataset):
        print(problem)
        found += 1
    if found:
        print(f"{found} problems", file=sys.stderr)
        raise typer.Exit(1)
    print(f"{dataset}: sound")


def main() -> int:
    """Entry point: exit status 0; 1 for an error, told in one line; 130 when interrupted."""
    from wmsched.errors import WmschedError

    try:
        status = app(standalone_mode=False)
        return status if isinstance(status, int) else 0
    except WmschedError as error:
        print(f"wmsched-data: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        print("wmsched-data: stopped; run the same command again to go on", file=sys.stderr)
        return 130
    except typer.Exit as stop:
        return int(stop.exit_code)
    except Exception as error:
        import click

        if isinstance(error, click.ClickException):
            error.show()
            return int(error.exit_code)
        raise


if __name__ == "__main__":
    sys.exit(main())
