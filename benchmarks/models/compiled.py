"""`python -m benchmarks.models.compiled RESULTS... --methods ansor,wmsched --out FILE`: whole models of
tuned tasks.

A model is compiled by Relay with each task's best schedule out of the result lines, and the whole of it is
timed: what the paper's Figure 4 compares with PyTorch. A model counts when all its tasks are tuned at the
budget. The executables of a model are timed in turn. One line for each model, method and seed: kind "whole".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.outcomes import weighted
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.plan import DEFAULT_ROUND, Results, read_all
from benchmarks.tune import child
from benchmarks.tune.remeasure import interleave
from wmsched import zoo

LIMIT_SECONDS = 3600.0  # a model's time, the compilations included
MIN_REPEAT_MS = 100


def records(data: Outcomes, model: str, method: str, setting: Setting) -> dict[int, tuple[list[str], bool]]:
    """Of each seed that all of the model's tasks have, the best records; a seed without one is left out.

    With them goes whether their search compiled candidates with `vector_math`.
    """
    cells = [weighted.cell(data, names, method, setting) for _, names in weighted.tasks_of()[model]]
    seeds = set.intersection(*(set(cell) for cell in cells))
    return {
        seed: (
            [cell[seed].record for cell in cells],
            any(cell[seed].line.get("vector_math") for cell in cells),
        )
        for seed in sorted(seeds)
    }


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Compile `spec["model"]` with each of `spec["choices"]` (records, whether in vectors), timed in turn."""
    from wmsched.base.cores import name_threads
    from wmsched.toolchain.resolve import autoscheduler_tvm

    tvm = autoscheduler_tvm()
    name_threads(tvm)
    from benchmarks.models import networks

    network = next(n for n in networks.NETWORKS if n.name == spec["model"])
    module, params = networks.build(network)
    choices = {str(number): choice for number, choice in enumerate(spec["choices"])}
    missed: dict[str, list[str]] = {}

    def build(name: str) -> Callable[[], float]:
        missed[name] = []
        lines, vectors = choices[name]
        return _timer(module, params, network.shape, lines, missed[name], vector_math=vectors)

    entries = interleave(list(choices), build, spec["rounds"])
    for name, entry in zip(choices, entries):
        entry["missed"] = missed[name]
    threads = int(tvm.runtime.num_threads())
    return {"status": "ok", "entries": entries, "threads": threads, "tvm": tvm.__version__}


def _timer(
    module: Any,
    params: Any,
    shape: tuple[int, ...],
    lines: list[str],
    missed: list[str],
    *,
    vector_math: bool,
) -> Callable[[], float]:
    """Compile with the schedules of some records, and return a function that times a whole inference once.

    `missed` is given the functions with heavy operators for which there was no schedule.
    """
    import json
    import tempfile

    import numpy as np
    import tvm
    from tvm import relay
    from tvm.contrib import graph_executor

    from wmsched.ansor.relay import ApplyHistoryBest

    target = tvm.target.Target(json.loads(lines[0])["i"][0][1])
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
        log.write("\n".join(lines) + "\n")
        log.flush()
        with (
            ApplyHistoryBest(log.name, vector_math=vector_math) as history,
            tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}),
        ):
            library = relay.build(module, target=target, params=params)
    missed.extend(name for name in history.missed if name not in missed)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("data", np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
    executor.run()
    evaluate = executor.module.time_evaluator(
        "run", tvm.cpu(), number=1, repeat=1, min_repeat_ms=MIN_REPEAT_MS
    )
    return lambda: float(evaluate().mean)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models.compiled", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("results", nargs="+", type=Path, help="result lines of benchmarks.run")
    parser.add_argument("--methods", default="ansor,wmsched", help="by commas (%(default)s)")
    parser.add_argument("--models", default="all", help=f"of {', '.join(zoo.models())}; by commas, or all")
    parser.add_argument("--budget", type=int, default=64, help="trials a task (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="timings of each, in turn (%(default)s)")
    parser.add_argument("--timeout", type=float, default=LIMIT_SECONDS)
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    data = Outcomes(read_all(options.results))
    setting = Setting(options.budget, min(options.budget, DEFAULT_ROUND))
    results = Results(options.out)
    failed = made = 0
    for model in zoo.models() if options.models == "all" else options.models.split(","):
        found = [
            (method, seed, choice)
            for method in options.methods.split(",")
            for seed, choice in records(data, model, method, setting).items()
        ]
        if not found:
            console.print(f"{model}: not every task is tuned at {setting}; left out", markup=False)
            continue
        spec = {"model": model, "choices": [choice for _, _, choice in found], "rounds": options.rounds}
        output = options.out.with_suffix("") / f"whole-{model}.out"
        outcome = child.call("benchmarks.models.compiled", spec, timeout=options.timeout, output=output)
        entries = outcome.pop("entries", [{}] * len(found))
        for (method, seed, (_, vectors)), entry in zip(found, entries):
            line = {
                "kind": "whole",
                "model": model,
                "method": method,
                "vector_math": vectors,
                "budget": setting.budget,
                "round_size": setting.round_size,
                "seed": seed,
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                **machine.describe(),
                **outcome,
                **entry,
            }
            line["status"] = "ok" if "median" in line else "error"
            results.append(line)
            made += 1
            failed += line["status"] != "ok"
            text = f"{line['median'] * 1e3:.3f} ms" if line["status"] == "ok" else line["error"]
            console.print(f"{model} {method}, seed {seed}: {text}", markup=False, highlight=False)
    return 1 if failed or not made else 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].endswith("spec.json"):  # as `benchmarks.tune.child` calls its steps
        child.answer(measure)
    else:
        sys.exit(main())
