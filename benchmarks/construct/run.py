"""`python -m benchmarks.construct --out FILE`: what the constructor's first choice costs.

For each of the 22 representatives, in MetaSchedule, every variant (a traversal and a choice) constructs a
schedule without measuring. All first choices of a task, and the model's first 32 distinct schedules, are
then built as `wmsched compile` builds and timed in turns in one process. One JSON line a task, kind
"first_choice". FILE is gone on with: a task whose line has all variants is not measured again. Then the
table. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import importlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine, suites
from benchmarks.construct import table
from benchmarks.construct.variants import VARIANTS
from benchmarks.plan import Results, read_all
from wmsched.base.errors import UnknownName

MEASURED_WITH = ("bundle", "seed", "rounds")  # fields that lines of one file share


def main(argv: list[str] | None = None) -> int:
    """Measure what is missing and print the table; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.construct", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    parser.add_argument("--print", action="store_true", help="print the table and measure nothing")
    parser.add_argument("--into", type=Path, help=f"write that table into a page, such as {table.PAGE}")
    parser.add_argument("--tasks", default=",".join(suites.BY_TYPE), help="types of representatives (all)")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="(%(default)s)")
    parser.add_argument("--bundle", default="x86-meta", help="(%(default)s)")
    parser.add_argument("--pool", type=int, default=32, help="schedules of the model's order (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="timings of each schedule (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the traversals (%(default)s)")
    options = parser.parse_args(argv)
    if options.print or options.into:
        made = table.block(read_all([options.out]), options.out.as_posix())
        if options.into:
            page = options.into.read_text(encoding="utf-8")
            options.into.write_text(table.MARKS.replaced(page, made), encoding="utf-8")
        else:
            print(made)
        return 0
    tasks, names = options.tasks.split(","), options.variants.split(",")
    try:
        _known(tasks, suites.BY_TYPE, "representative")
        _known(names, VARIANTS, "variant")
    except UnknownName as error:
        parser.error(str(error))
    results = Results(options.out)
    asked = {name: getattr(options, name) for name in MEASURED_WITH}
    left = [task for task in tasks if not is_done(results.lines, task, names, asked)]
    if left:
        _measure(left, names, options, results)
    print(table.block(results.lines, options.out.as_posix()))
    return 0


def is_done(lines: list[dict[str, Any]], task: str, names: list[str], asked: dict[str, Any]) -> bool:
    """Whether a task's last line has all variants, measured as asked."""
    line = table.last_lines(lines).get(task)
    return (
        line is not None
        and set(names) <= set(line["variants"])
        and all(line[name] == value for name, value in asked.items())
    )


def _known(given: list[str], known: Any, what: str) -> None:
    for name in given:
        if name not in known:
            raise UnknownName(f"no {what} is called {name!r}; there are {', '.join(known)}")


def _measure(tasks: list[str], names: list[str], options: argparse.Namespace, results: Results) -> None:
    importlib.import_module("xgboost")  # before TVM, as everywhere here
    from wmsched.toolchain.resolve import meta_schedule_tvm

    tvm = meta_schedule_tvm()
    from benchmarks.construct.measure import Settings, measure, tools

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    settings = Settings(bundle=options.bundle, pool=options.pool, rounds=options.rounds, seed=options.seed)
    about = machine.describe()
    about["versions"] = about["versions"] | {"tvm": tvm.__version__}
    target, world, builder = tools(options.bundle)
    for number, task in enumerate(tasks, start=1):
        began = time.monotonic()
        line = measure(task, names, settings, target, world, builder)
        results.append({**line, "date": datetime.now(UTC).isoformat(timespec="seconds"), **about})
        best = min(line["seconds"].values(), default=float("nan"))
        told = ", ".join(
            f"{name} {line['seconds'][str(found['schedule'])] / best:.2f}"
            for name, found in line["variants"].items()
            if found["schedule"] is not None
        )
        spent = f"{time.monotonic() - began:.0f} s ({line['build_seconds']:.0f} of builds)"
        console.print(f"{number} of {len(tasks)}, {task}, {spent}: {told}")
