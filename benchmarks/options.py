"""Command line of `benchmarks.run`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import methods
from benchmarks.plan import DEFAULT_ROUND
from wmsched.measure.buffer_offsets import PLACES


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options; `about` is what `--help` says first."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.run", description=(about or "").split("\n\n")[0])
    p.add_argument(
        "--tasks", default="", help="tasks, types, models, representatives (default) or all; by commas"
    )
    p.add_argument(
        "--methods", default="ansor,random", help=f"of {', '.join(methods.MODULES)}; name@BUNDLE for one"
    )
    p.add_argument("--budgets", default="16", help="trials; each is a run of its own")
    p.add_argument("--seeds", default="0")
    p.add_argument(
        "--round-size", type=int, default=DEFAULT_ROUND, help="trials measured a round (%(default)s)"
    )
    p.add_argument(
        "--bundle", default="", help="world model of the wmsched methods: a shipped name or a folder"
    )
    p.add_argument("--training", action="append", default=[], help="logs or folders of them, for tenset, tlp")
    p.add_argument(
        "--workloads", action="append", default=[], help="workloads file of training logs, for tenset"
    )
    p.add_argument("--target", default="", help="TVM target (this machine's, from LLVM)")
    p.add_argument(
        "--rounds", type=int, default=12, help="times the best schedules are measured again (%(default)s)"
    )
    p.add_argument(
        "--again",
        action="store_true",
        help="measure the best schedules of the tasks again though they were, with other --rounds or on a "
        "quieter day: the latest counts",
    )
    p.add_argument(
        "--processes",
        type=int,
        default=4,
        help="which these are spread over (%(default)s)",
    )
    p.add_argument(
        "--keep-workers",
        action="store_true",
        help="AutoScheduler's builder and runner processes stay for a run, as in `wmsched tune`; stock TVM "
        "starts them anew for every few programs. Costs and curves of such runs are told apart",
    )
    p.add_argument(
        "--places",
        type=int,
        default=PLACES,
        help="sets of buffers that a candidate is timed on in the search on a processor, as in "
        "`wmsched tune`; TVM has one (%(default)s)",
    )
    p.add_argument(
        "--alone",
        action="store_true",
        help="time a candidate by itself, not beside the first of its search (wmsched/measure/paired.py)",
    )
    p.add_argument(
        "--emulate-threads",
        type=int,
        default=0,
        help="time AutoScheduler's programs as on a processor with so many cores (benchmarks.tune.emulated)",
    )
    p.add_argument(
        "--parcel",
        default="",
        metavar="FOLDER",
        help="build the candidates of MetaSchedule or of scripts into this folder, to be timed on another "
        "machine (benchmarks/tune/meta/deferred.py, benchmarks/tune/parcels.py)",
    )
    p.add_argument("--timeout", type=float, default=0.0, help="seconds a run may take (300 and 20 a trial)")
    p.add_argument("--cache", default="benchmarks/results/cache", help="fitted baseline models (%(default)s)")
    p.add_argument(
        "--simulate",
        action="append",
        metavar="RECORDS",
        help="replay these logs, without TVM; for meta- methods, in MetaSchedule's search, a folder with "
        'databases or logs of earlier runs, or "model": a made-up GPU',
    )
    p.add_argument(
        "--least", type=int, default=20, help="programs a recorded workload must have (%(default)s)"
    )
    p.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    return p
