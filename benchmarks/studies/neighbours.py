"""`python -m benchmarks.studies.neighbours RUNS.jsonl --tasks A,B --out FILE`: what lies near a search's
choice?

A run's best schedule is varied: its splits get other lengths, its unrolling another limit, the structure
stays. A cost model ranks some thousands of such; its first choices and as many of the others by lot are built
and timed beside the run's own (`wmsched.measure.paired`). If one is much faster, the search was too short
where the model ranks it high, and the model is wrong where it ranks it low. One JSON line a task: kind
"neighbours", `own`, seconds of the run's own schedule, first and last; `measured`, [place in the model's
order, seconds] of the others; `gain`, own over the fastest; `spearman` of the model's order and the times.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.plan import Results, read_all
from benchmarks.tune.measuring import BUILD_SECONDS, local_runner, search_task
from wmsched import zoo
from wmsched.base.errors import WmschedError
from wmsched.schedules.grammar import PragmaStep, SplitStep, Step, typed
from wmsched.toolchain.resolve import autoscheduler_tvm

KIND = "neighbours"
INNERMOST = 64  # AutoScheduler's limit of the innermost length (max_innermost_split_factor)
UNROLLS = (0, 16, 64, 512)  # its limits of unrolling on a processor
CHANGED = 0.7  # share of the splits that get other lengths
BATCH = 16
HEAD = (
    "task",
    "own, ms",
    "its place",
    "measured",
    "faster",
    "fastest, times as fast",
    "its place",
    "Spearman",
)


@functools.cache
def lengths(extent: int, count: int) -> list[list[int]]:
    """All ways to split `count` inner loops off one of `extent`, the innermost limited."""
    if not count:
        return [[]]
    most = INNERMOST if count == 1 else extent
    inner = [n for n in range(1, min(extent, most) + 1) if extent % n == 0]
    return [[n, *rest] for n in inner for rest in lengths(extent // n, count - 1)]


def variations(steps: Sequence[Any], luck: random.Random) -> Iterator[list[Any]]:
    """Schedules of the structure of `steps` with other split lengths and unrolling, none twice.

    Ends where a thousand draws brought nothing new.
    """
    seen, idle = {json.dumps(steps)}, 0
    while idle < 1000:
        varied = [[*_varied(typed(step), luck)] for step in steps]
        key = json.dumps(varied)
        idle = idle + 1 if key in seen else 0
        if not idle:
            seen.add(key)
            yield varied


def _varied(step: Step, luck: random.Random) -> Step:
    match step:
        case SplitStep(extent=extent) if extent and luck.random() < CHANGED:
            return step._replace(lengths=list(luck.choice(lengths(extent, len(step.lengths)))))
        case PragmaStep(pragma=pragma) if pragma.startswith("auto_unroll_max_step$"):
            return step._replace(pragma=f"auto_unroll_max_step${luck.choice(UNROLLS)}")
    return step


def choose(order: Sequence[int], count: int, luck: random.Random) -> list[int]:
    """Half of `count` from the front of an order, the rest by lot from behind it."""
    first, rest = list(order[: count // 2]), list(order[count // 2 :])
    return first + luck.sample(rest, min(count - len(first), len(rest)))


def summary(own: Sequence[float], measured: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """What a task's line says of its times; failed ones, which are infinite, count for nothing."""
    from scipy.stats import spearmanr

    good = [(place, seconds) for place, seconds in measured if math.isfinite(seconds)]
    if len(good) < 2 or not all(map(math.isfinite, own)):
        raise WmschedError(f"{len(good)} of {len(measured)} neighbours could be measured: nothing to compare")
    place, fastest = min(good, key=lambda one: one[1])
    return {
        "gain": statistics.mean(own) / fastest,
        "place": place,
        "faster": sum(seconds < statistics.mean(own) for _, seconds in good),
        "spearman": float(spearmanr(*zip(*good)).statistic),
    }


def runs(results: Path, method: str, tasks: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The lines of a method's runs of `tasks`, by default of all in the file; WmschedError if one is not."""
    lines = {
        run.task: outcome.line | {"best_record": outcome.record}
        for run, outcome in Outcomes(read_all([results])).all.items()
        if run.method == method
    }
    if missing := [name for name in tasks if name not in lines]:
        raise WmschedError(f"{results} has no finished run of {method} on {', '.join(missing)}")
    return {name: lines[name] for name in tasks or lines}


def explore(line: dict[str, Any], bundle: str, sampled: int, count: int, seed: int) -> dict[str, Any]:
    """Measure the neighbours of a run line's best schedule: `own`, `own_place`, `sampled` and `measured`."""
    tvm = autoscheduler_tvm()
    from wmsched.ansor.task_scheduler import WorldModelCostModel

    ansor = tvm.auto_scheduler
    (row,) = zoo.find(line["task"])
    task = search_task(row, "")
    luck = random.Random(seed)
    record = json.loads(line["best_record"])
    steps = record["i"][1][1]
    states = []
    for varied in [steps, *(found for found, _ in zip(variations(steps, luck), range(sampled)))]:
        record["i"][1][1] = varied
        entry, _ = ansor.measure_record.load_record_from_string(json.dumps(record))
        try:
            states.append(task.compute_dag.infer_bound_from_state(entry.state))
        except Exception:  # lengths that do not go together
            continue
    scores = WorldModelCostModel(bundle, diversity=0.0).predict(task, states)
    order = sorted(range(len(states)), key=lambda place: -scores[place])
    places = {number: place for place, number in enumerate(order)}
    chosen = choose([number for number in order if number], count, luck)
    seconds = _times(task, [states[number] for number in [0, *chosen, 0]], bool(line.get("vector_math")))
    return {
        "own": [seconds[0], seconds[-1]],
        "own_place": places[0],
        "sampled": len(states),
        "measured": [(places[number], found) for number, found in zip(chosen, seconds[1:-1])],
    }


def _times(task: Any, states: Sequence[Any], vectors: bool) -> list[float]:
    """Seconds of each as a search times it; infinite for one that fails."""
    from wmsched.ansor.codegen import builders_with_vector_math
    from wmsched.ansor.runner import several_places
    from wmsched.ansor.workers import kept_workers
    from wmsched.measure.buffer_offsets import PLACES

    ansor = autoscheduler_tvm().auto_scheduler
    builder, (runner, _) = ansor.LocalBuilder(timeout=BUILD_SECONDS), local_runner(task.target)
    found = []
    with kept_workers(), several_places(PLACES), builders_with_vector_math(vectors):
        for start in range(0, len(states), BATCH):
            inputs = [ansor.MeasureInput(task, state) for state in states[start : start + BATCH]]
            for result in runner.run(inputs, builder.build(inputs, 0), 0):
                costs = [float(cost) for cost in result.costs]
                found.append(math.inf if result.error_no else statistics.mean(costs))
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.neighbours", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("results", type=Path, help="run lines whose best schedules are varied")
    parser.add_argument("--tasks", required=True, help="names, with commas between")
    parser.add_argument("--method", default="wmsched-script", help="whose runs (%(default)s)")
    parser.add_argument("--bundle", default="x86-avx512", help="the model that ranks (%(default)s)")
    parser.add_argument("--sampled", type=int, default=4000, help="variations that it ranks (%(default)s)")
    parser.add_argument("--count", type=int, default=96, help="of these measured (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    options = parser.parse_args(argv)
    lines = runs(options.results, options.method, options.tasks.split(","))
    results = Results(options.out)
    print(f"| {' | '.join(HEAD)} |")
    print(f"| --- {'| ---: ' * (len(HEAD) - 1)}|")
    for name in lines:
        found = explore(lines[name], options.bundle, options.sampled, options.count, options.seed)
        line = {"kind": KIND, "task": name, "method": options.method, "bundle": options.bundle, **found}
        line |= summary(found["own"], found["measured"])
        line |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), **machine.describe()}
        results.append(line)
        cells = (
            name,
            f"{statistics.mean(line['own']) * 1e3:.4g}",
            f"{line['own_place']} of {line['sampled']}",
            len(line["measured"]),
            line["faster"],
            f"{line['gain']:.3f}",
            line["place"],
            f"{line['spearman']:.2f}",
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
