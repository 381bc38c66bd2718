"""`python -m benchmarks.studies.timing_noise RESULTS.jsonl --out FILE`: how a search's timings of a program
vary.

The best schedule of some tasks, out of run lines, is built and timed again and again as a search builds and
times a candidate, for each number of calls in turn, by itself and beside a reference
(`wmsched.measure.paired`). One JSON line for each task, number and way: kind "timing_noise", `paired`,
`seconds` of each timing, `deviation`, the standard deviation of their logarithms, and `wall_seconds`, the
median of what a timing took. Where two timings of one program differ by a fifth, they do not tell which of
two candidates is the faster by a tenth.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.plan import Results, read_all
from benchmarks.tune.measuring import RUN_SECONDS, search_task
from wmsched import zoo
from wmsched.ansor.runner import several_places
from wmsched.base.errors import WmschedError
from wmsched.measure.buffer_offsets import CALLS, PLACES
from wmsched.toolchain.resolve import autoscheduler_tvm

TASKS = "resnet50/0,opt-1.3b-attention/0,gpt2/7,mobilenetv2/31"  # from 14 ms to 7 us on a Xeon


def fastest(results: Path, tasks: list[str]) -> dict[str, str]:
    """Each task's record with the least time among the run lines of a results file, in the order of `tasks`.

    Raises
    ------
    WmschedError
        For a task without one.
    """
    found: dict[str, tuple[float, str]] = {}
    for run, outcome in Outcomes(read_all([results])).all.items():
        seconds = outcome.seconds if outcome.instead else outcome.line["best_seconds"]
        best = float(seconds), outcome.record
        found[run.task] = min(found.get(run.task, best), best)
    missing = [task for task in tasks if task not in found]
    if missing:
        raise WmschedError(f"{results} has no finished run of {', '.join(missing)}: name others with --tasks")
    return {task: found[task][1] for task in tasks}


def deviation(seconds: list[float]) -> float:
    """The standard deviation of the logarithms: 0.1 is about a tenth."""
    return statistics.stdev(map(math.log, seconds))


def time_in_turns(
    entries: dict[str, Any], ways: list[tuple[int, bool]], rounds: int
) -> dict[tuple[str, int, bool], Any]:
    """Time programs as a search does: (task, calls, paired) to [(seconds, seconds to take it), ...].

    Parameters
    ----------
    entries : dict of task to MeasureInput
    ways : list of (int, bool)
        Calls whose median is a place's cost, and whether beside a reference, as `several_places` takes them.
    rounds : int
        Timings of each.
    """
    from wmsched.ansor.workers import kept_workers

    ansor = autoscheduler_tvm().auto_scheduler
    builder = ansor.LocalBuilder()
    runner = ansor.LocalRunner(timeout=RUN_SECONDS, repeat=1, enable_cpu_cache_flush=True)
    found: dict[tuple[str, int, bool], Any] = {}
    with kept_workers(), ExitStack() as stack:
        # each way keeps its references from round to round, as a search does
        timers, tvms = {}, ansor.measure._timed_eval_func
        for number, paired in ways:
            ansor.measure._timed_eval_func = tvms  # of another way's function it would say: not known
            stack.enter_context(several_places(PLACES, number, paired=paired))
            timers[number, paired] = ansor.measure._timed_eval_func
        for _ in range(rounds):
            for way in ways:
                ansor.measure._timed_eval_func = timers[way]
                for task, entry in entries.items():
                    built = builder.build([entry], 0)
                    start = time.perf_counter()
                    (result,) = runner.run([entry], built, 0)
                    if result.error_no:
                        raise WmschedError(f"{task}: {result.error_msg}")
                    seconds = statistics.mean(float(cost) for cost in result.costs)
                    found.setdefault((task, *way), []).append((seconds, time.perf_counter() - start))
        ansor.measure._timed_eval_func = tvms
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.timing_noise", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("results", type=Path, help="run lines whose best schedules are timed")
    parser.add_argument("--tasks", default=TASKS, help="names, with commas between (%(default)s)")
    parser.add_argument("--calls", default=f"1,5,{CALLS}", help="numbers of calls (%(default)s)")
    parser.add_argument("--paired", default=f"{CALLS}", help="those beside a reference (%(default)s)")
    parser.add_argument("--rounds", type=int, default=40, help="timings of each, two at least (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    options = parser.parse_args(argv)
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: one timing does not vary")
    tvm = autoscheduler_tvm()
    records = fastest(options.results, options.tasks.split(","))
    entries = {}
    for name, record in records.items():
        (row,) = zoo.find(name)
        task = search_task(row, "")  # for this machine, whatever the record was made on
        recorded, _ = tvm.auto_scheduler.measure_record.load_record_from_string(record)
        entries[name] = tvm.auto_scheduler.MeasureInput(task, recorded.state)
    ways = [(int(number), False) for number in options.calls.split(",")]
    ways += [(int(number), True) for number in options.paired.split(",") if number]
    found = time_in_turns(entries, ways, options.rounds)
    results = Results(options.out)
    print("| task | calls | beside a reference | median | deviation | wall seconds |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for (name, number, paired), timings in sorted(found.items()):
        seconds, wall = [one for one, _ in timings], statistics.median(one for _, one in timings)
        line = {
            "kind": "timing_noise",
            "task": name,
            "calls": number,
            "paired": paired,
            "places": PLACES,
            "seconds": seconds,
            "deviation": deviation(seconds),
            "wall_seconds": wall,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **machine.describe(),
        }
        results.append(line)
        median = 1e3 * statistics.median(seconds)
        cells = (
            name,
            number,
            "yes" if paired else "no",
            f"{median:.4f} ms",
            f"{line['deviation']:.3f}",
            f"{wall:.2f}",
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
