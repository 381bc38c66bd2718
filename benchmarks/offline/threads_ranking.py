"""`python -m benchmarks.offline.threads_ranking RESULTS.jsonl --out FILE`: how a bundle ranks what many
threads took.

The candidates of stock Ansor's first rounds, random ones, which `benchmarks.run --emulate-threads` has timed,
or another machine with many cores (`benchmarks.tune.parcels`), are ranked by a bundle of AutoScheduler
twice: told how many threads there were, and taken for one thread's.
One JSON line for each task and number of threads: kind "threads_ranking", `told` and `alone` with top-1,
top-5 and pairs. Lines of that kind among the RESULTS are put into the table that is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Line, Results, read
from wmsched import zoo
from wmsched.base.errors import WmschedError
from wmsched.learn.evaluate.quality import estimate, workload_quality
from wmsched.model.world_model import WorldModel
from wmsched.schedules.steps import parse_record
from wmsched.schedules.types import Record
from wmsched.toolchain.resolve import autoscheduler_tvm

METHODS = ("ansor", "ansor-script")
SHOWN = (("top1", "top-1"), ("top5", "top-5"), ("pairs", "pairs"))


def ranked(results: Path, bundle: str) -> Iterator[Line]:
    """A line for each of stock Ansor's runs for many cores in a results file, its logs beside it.

    Raises
    ------
    WmschedError
        There is no such run.
    """
    autoscheduler_tvm()
    from wmsched.ansor.compute_dag import task_from_row, workload_from_task

    model = WorldModel.from_pretrained(bundle)
    rows = {row["name"]: row for row in zoo.rows()}
    lines = {
        (line["task"], threads): line  # of several budgets the last
        for line in read(results)
        if line["kind"] == "run" and line["method"] in METHODS and line["status"] == "ok"
        if (threads := _threads(line))
    }
    if not lines:
        raise WmschedError(
            f"{results} has no finished run of {' or '.join(METHODS)} for many cores: make some by "
            "benchmarks.run with --emulate-threads or --parcel"
        )
    for (name, threads), line in sorted(lines.items()):
        path = results.parent / line["log"]
        records = [parse_record(text, place=str(path)) for text in path.read_bytes().splitlines()]
        records = [record for record in records if record.measurement.ok]
        workload = workload_from_task(task_from_row(rows[name], target=line["target"]))
        yield {
            "kind": "threads_ranking",
            "task": name,
            "threads": threads,
            "records": len(records),
            "told": _quality(model, dataclasses.replace(workload, hardware=records[0].hardware), records),
            "alone": _quality(model, dataclasses.replace(workload, threads=1), records),
            "bundle": bundle,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **machine.describe(),
        }


def _threads(line: Line) -> int:
    """Of a run for many cores, emulated or another machine's; 0 for a run of this one's."""
    return int(line.get("emulated_threads") or (line["threads"] if line.get("deferred") else 0))


def _quality(model: WorldModel, workload: Any, records: Sequence[Record]) -> dict[str, float]:
    scores = model.task(workload, "").margins([record.steps for record in records])
    seconds = np.array([record.measurement.seconds for record in records])
    found = workload_quality(scores, seconds)
    return {"top1": found["top1"], "top5": found["top5"], "pairs": found["pairwise"]}


def table(lines: Sequence[Line]) -> Table:
    """Means over tasks with intervals, for each number of threads."""
    rows = []
    for threads in sorted({int(line["threads"]) for line in lines}):
        own = {line["task"]: line for line in lines if int(line["threads"]) == threads}.values()
        for key, what in (("alone", "taken for one thread's"), ("told", "told of them")):
            found = [estimate(np.array([line[key][name] for line in own])).text() for name, _ in SHOWN]
            rows.append([str(threads), str(len(own)), what, *found])
    head = ["threads", "subgraphs", "the bundle", *(name for _, name in SHOWN)]
    return Table(title="", head=head, rows=rows)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.offline.threads_ranking", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("results", type=Path, nargs="+", help="lines of emulated runs, or what this wrote")
    parser.add_argument("--bundle", default="x86-avx512", help="a name or a folder (%(default)s)")
    parser.add_argument("--out", type=Path, help="results file of the lines made, JSON lines")
    options = parser.parse_args(argv)
    lines = [line for file in options.results for line in read(file) if line["kind"] == "threads_ranking"]
    if options.out:
        out = Results(options.out)
        for file in options.results:
            for line in ranked(file, options.bundle):
                out.append(line)
                lines.append(line)
    elif not lines:
        parser.error("no line of this kind is there: --out FILE makes them of emulated runs")
    print(table(lines).markdown())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
