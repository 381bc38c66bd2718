"""`python -m benchmarks.models.pytorch --out FILE`: latency of the seven models in PyTorch, eager and
compiled.

One JSON line for each model, executor and number of threads; what the file has already is not repeated.
Give the file to `benchmarks.report` together with the tuning runs' and the two are set side by side.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from benchmarks.models.pytorch.timing import EXECUTORS
from benchmarks.plan import Line, Results
from benchmarks.tune import child
from wmsched import zoo
from wmsched.base.cores import usable_cores

LIMIT_SECONDS = 1800.0  # a model's time, its compilation included


def done(lines: list[Line], torch: str) -> set[tuple[str, str, int]]:
    """(model, executor, threads) of the good lines made with this torch."""
    return {
        (line["model"], line["executor"], line["threads"])
        for line in lines
        if line["kind"] == "pytorch" and line["status"] == "ok" and line["versions"].get("torch") == torch
    }


def main(argv: list[str] | None = None) -> int:
    cores = usable_cores()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models.pytorch", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--models", default="all", help=f"of {', '.join(zoo.models())}; by commas, or all")
    parser.add_argument("--executors", default=",".join(EXECUTORS), help="%(default)s")
    parser.add_argument(
        "--threads",
        default=",".join(map(str, dict.fromkeys((1, cores)))),
        help="by commas (%(default)s); how many the tuned programs had is in their result lines",
    )
    parser.add_argument("--rounds", type=int, default=7, help="timings of each, in turn (%(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=LIMIT_SECONDS, help="seconds a model may take (%(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="results file, JSON lines; may have others in it"
    )
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    names = zoo.models() if options.models == "all" else options.models.split(",")
    executors = options.executors.split(",")
    threads = [int(text) for text in options.threads.split(",")]
    unknown = [n for n in names if n not in zoo.models()] + [e for e in executors if e not in EXECUTORS]
    if unknown or min(threads) < 1 or options.rounds < 1:
        what = (
            f"no model or executor is called {', '.join(unknown)}"
            if unknown
            else "threads and rounds start at 1"
        )
        console.print(f"pytorch: {what}; the models are {', '.join(zoo.models())}", style="red", markup=False)
        return 2
    results = Results(options.out)
    about = machine.describe()
    before = done(results.lines, about["versions"].get("torch", ""))
    failed = 0
    for name in names:
        for count in threads:
            wanted = [e for e in executors if (name, e, count) not in before]
            if not wanted:
                continue
            spec = {"model": name, "executors": wanted, "threads": count, "rounds": options.rounds}
            output = options.out.with_suffix("") / f"pytorch-{name}-{count}.out"
            outcome = child.call(
                "benchmarks.models.pytorch.timing", spec, timeout=options.timeout, output=output
            )
            for executor in wanted:
                entry = outcome.get("entries", {}).get(executor) or outcome
                line = {
                    "kind": "pytorch",
                    "model": name,
                    "executor": executor,
                    "threads": count,
                    "rounds": options.rounds,
                    "date": datetime.now(UTC).isoformat(timespec="seconds"),
                    **about,
                    **{key: value for key, value in entry.items() if key != "entries"},
                }
                results.append(line)
                failed += line["status"] != "ok"
                text = f"{line['median'] * 1e3:.3f} ms" if line["status"] == "ok" else line["error"]
                console.print(f"{name} {executor}, {count} threads: {text}", markup=False, highlight=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
