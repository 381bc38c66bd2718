"""`python -m benchmarks.run`: tune tasks with several methods, measure the best again, print the table.

    python -m benchmarks.run --tasks representatives --methods ansor,random,wmsched --budgets 16,64 \\
        --seeds 0,1,2 --bundle x86-avx512 --out benchmarks/results/cpu.jsonl

Every run is one line of the results file. Start the same command again after a kill and it goes on where it
was.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import leak, methods, records
from benchmarks.bench import Bench
from benchmarks.checks import (
    bundle_folder,
    check_emulation,
    check_meta,
    check_parcel,
    check_places,
    check_processor,
    simulated_machine,
)
from benchmarks.options import parser
from benchmarks.plan import Results, Run, plan
from benchmarks.report import report
from benchmarks.tune import simulate
from wmsched import zoo
from wmsched.base.errors import WmschedError


def prepare(options: argparse.Namespace, console: Console) -> tuple[Bench, list[Run], dict[str, Any] | None]:
    """Look up tasks, methods and bundles; refuse what cannot be run honestly before anything is run."""
    budgets = [int(text) for text in options.budgets.split(",")]
    recorded = None
    simulate_meta = simulated_machine(options)
    scripts = [text for text in options.methods.split(",") if methods.kin(text).endswith(methods.SCRIPT)]
    if options.simulate and scripts:
        raise WmschedError(
            f"{scripts[0]} is a whole script, which cannot be simulated: leave it out, or --simulate"
        )
    if options.simulate and not simulate_meta:
        recorded = simulate.load(options.simulate, least=options.least)
        wanted = list(recorded) if options.tasks in ("", "all") else options.tasks.split(",")
        unknown = [name for name in wanted if name not in recorded]
        if unknown:
            raise WmschedError(
                f"no recorded task {', '.join(unknown)}; there are {', '.join(list(recorded)[:8])}, ..."
            )
        tasks = {
            name: {"name": name, "workload_key": recorded[name].key, "type": "", "model": "", "weight": 1}
            for name in wanted
        }
    else:
        names = options.tasks or "representatives"
        tasks = {row["name"]: row for name in names.split(",") for row in zoo.find(name)}
    # what no method may have learned from
    exclude = tuple(key for row in zoo.rows() for key in zoo.keys(row))
    bench = Bench(options, Results(options.out), console, tasks, exclude, simulate_meta)
    if not options.simulate:
        check_processor(bench.results, options.emulate_threads)
        check_places(bench.results, options)
    if options.emulate_threads:
        check_emulation(options)
    labels = []
    for text in options.methods.split(","):
        name, bundle = methods.split(text)
        label = text
        if name.startswith(methods.META):
            check_meta(name, tasks)
        if name in methods.NEED_BUNDLE:
            if not (bundle or options.bundle):
                raise WmschedError(f"{name} needs a world model: give --bundle, or {name}@FOLDER")
            folder = bundle_folder(bundle or options.bundle)
            label = f"{name}@{folder.name}" if bundle else name
            fingerprint = leak.read_fingerprint(folder)
            leak.check(fingerprint, list(tasks.values()), model=f"the bundle {folder.name}")
            bench.bundles[label] = folder
            bench.fingerprints[label] = leak.bundle_digest(folder)
        elif name in methods.FITTED:  # to these logs, whatever others an earlier run had
            made_of = [*records.log_files(options.training), *map(Path, options.workloads)]
            bench.fingerprints[label] = records.digest(made_of, exclude)
        else:
            bench.fingerprints[label] = None
        labels.append(label)
    if min(options.rounds, options.processes) < 1:
        raise ValueError(f"--rounds {options.rounds} and --processes {options.processes} must be at least 1")
    seeds = [int(text) for text in options.seeds.split(",")]
    runs = plan(list(tasks), labels, budgets, seeds, round_size=options.round_size)
    if options.parcel:
        check_parcel(options, runs)
    return bench, runs, recorded


def _markdown(results: Results) -> str:
    try:
        return report.markdown(results.lines)
    except ValueError as error:  # what the file has of earlier is no report together with this
        return f"{results.path}: {error}"


def main(argv: list[str] | None = None) -> int:
    """Run and print the tables; the exit status is 1 if a run failed, 2 if nothing could be started."""
    options = parser(__doc__).parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    console = Console(stderr=True)
    try:
        bench, runs, recorded = prepare(options, console)
    except (WmschedError, ValueError, OSError) as error:
        console.print(str(error), style="red", markup=False)
        return 2
    failed = bench.go(runs, recorded)
    if not options.parcel:
        print(_markdown(bench.results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
