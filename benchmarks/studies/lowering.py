"""`python -m benchmarks.studies.lowering RUNS.jsonl --out FILE`: what `wmsched.codegen.pipeline` brings.

The best schedule of each run is built twice, both times with exp, tanh and the like in vectors: with its
loops as TVM makes them, and with those in vectors and what products read next fetched ahead. The two are
timed in turns with cold caches, as a second measurement is. One JSON line a task: kind "lowering", `plain`
and `lowered` as entries of a second measurement, `gain` of their medians. Then a table, with the mean.
"""

from __future__ import annotations

import argparse
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.plan import Results
from benchmarks.studies.neighbours import runs
from benchmarks.tune.buffers import Buffers
from benchmarks.tune.measuring import search_task
from benchmarks.tune.remeasure import interleave, timer
from wmsched import zoo
from wmsched.base.errors import WmschedError

KIND = "lowering"
ROUNDS = 12
HEAD = ("task", "loops as TVM makes them, ms", "in vectors, fetched ahead, ms", "times as fast")


def measure(name: str, record: str, rounds: int) -> dict[str, Any]:
    """`plain` and `lowered` of a record of the task of that name."""
    from wmsched.ansor.codegen import vector_math
    from wmsched.base.cores import name_threads
    from wmsched.toolchain.resolve import autoscheduler_tvm

    tvm = autoscheduler_tvm()
    name_threads(tvm)
    (row,) = zoo.find(name)
    task = search_task(row, "")
    device = tvm.cpu(0)
    fill = tvm.get_global_func("tvm.contrib.random.random_fill")
    buffers = Buffers(lambda shape, dtype: tvm.nd.empty(shape, dtype, device), fill)

    def build(loops: bool) -> Any:
        with vector_math(loops=loops):
            return timer(task, device, record, None, buffers, None)

    plain, lowered = interleave([False, True], build, rounds)
    if wrong := plain.get("error") or lowered.get("error"):
        raise WmschedError(f"{name}: {wrong}")
    return {"status": "ok", "plain": plain, "lowered": lowered, "rounds": rounds}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.lowering", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("results", type=Path, help="run lines whose best schedules are built")
    parser.add_argument("--method", default="wmsched-script", help="whose runs (%(default)s)")
    parser.add_argument("--tasks", default="", help="names, with commas between; all of the file if none")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timings of each (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    options = parser.parse_args(argv)
    lines = runs(options.results, options.method, options.tasks.split(",") if options.tasks else ())
    results, gains = Results(options.out), []
    print(f"| {' | '.join(HEAD)} |")
    print(f"| --- {'| ---: ' * (len(HEAD) - 1)}|")
    for name, run in lines.items():
        answer = measure(name, run["best_record"], options.rounds)
        gains.append(answer["plain"]["median"] / answer["lowered"]["median"])
        line = {"kind": KIND, "task": name, "method": options.method, **answer, "gain": gains[-1]}
        line |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), **machine.describe()}
        results.append(line)
        cells = (f"{answer[each]['median'] * 1e3:.4g}" for each in ("plain", "lowered"))
        print(f"| {name} | {' | '.join(cells)} | {gains[-1]:.2f} |", flush=True)
    print(f"| **geometric mean** | | | **{statistics.geometric_mean(gains):.2f}** |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
