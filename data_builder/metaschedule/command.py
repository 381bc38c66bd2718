"""What `wmsched-data collect --scheduler meta` does: the command line's words into `collect_traces`."""

from __future__ import annotations

from pathlib import Path

from data_builder.base.console import ConsoleReport
from data_builder.collect.collect import CollectOptions
from data_builder.metaschedule.collect import collect_traces
from data_builder.metaschedule.programs import read_programs, select


def collect(workloads: str, tasks: str, out: Path, options: CollectOptions) -> None:
    """Collect a database and say what is in it.

    Parameters
    ----------
    workloads : str
        "train", or a file of programs; see `programs.read_programs`.
    tasks : str
        Which of them; see `programs.select`.
    """
    with ConsoleReport() as report:
        counts = collect_traces(select(read_programs(workloads), tasks), out, options, report)
    print(
        f"{out}: {counts['records']} records of {counts['tasks']} programs, {counts['measured']} measured "
        f"now, {counts['failed']} of these failed; {counts['unfinished']} programs have fewer than "
        f"{options.trials}"
    )
