"""`python -m benchmarks.studies.dense_layout --out FILE`: dense layers, their weights as they are and laid
out anew.

Relay in TVM 0.16 calls the axes of a dense layer i0 and i1, and AutoScheduler, which finds a rewritten
layout's axes by their names, finds none that end in a digit: every build fails, unless the axes are named
as `wmsched.ansor.dense_layout` names them. One JSON line for each layer, option and
method: kind "dense_layout", `seconds` as the search timed the best schedule, on three sets of buffers.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.plan import DEFAULT_ROUND, Results
from wmsched.ansor.compute_dag import NO_REWRITE, PRE_TRANSFORMED
from wmsched.measure.buffer_offsets import PLACES
from wmsched.toolchain.resolve import autoscheduler_tvm, host_target

LAYERS = ((128, 768, 768), (128, 3072, 768), (128, 768, 3072))  # BERT's: rows, outputs, inputs
OPTIONS = {"kept": NO_REWRITE, "rewritten": PRE_TRANSFORMED}
METHODS = {"ansor": None, "wmsched": "x86-avx512"}


def layer(rows: int, outputs: int, inputs: int) -> list[Any]:
    """A dense layer with bias as Relay lowers it, but for the names of its axes."""
    from tvm import te

    from wmsched.ansor.dense_layout import product

    data = te.placeholder((rows, inputs), name="p0")
    weight = te.placeholder((outputs, inputs), name="p1")
    bias = te.placeholder((1, outputs), name="p2")
    dense = product(data, weight, data.dtype, (False, True))
    added = te.compute((rows, outputs), lambda i, j: dense[i, j] + bias[0, j], name="T_add")
    return [data, weight, bias, added]


def tune(shape: tuple[int, int, int], option: int, bundle: str | None, trials: int, seed: int) -> float:
    """Seconds of the best of so many schedules."""
    tvm = autoscheduler_tvm()
    from tvm import auto_scheduler

    from wmsched.ansor.task_scheduler import TaskScheduler
    from wmsched.measure.malloc_env import steady_buffers
    from wmsched.schedules.log_file import tally

    task = auto_scheduler.SearchTask(
        func=layer, args=shape, target=tvm.target.Target(host_target()), layout_rewrite_option=option
    )
    with tempfile.TemporaryDirectory() as folder, steady_buffers():
        log = Path(folder, "log.json")
        log.touch()
        scheduler = TaskScheduler([task], callbacks=[], cost_model=bundle, seed=seed, places=PLACES, rounds=1)
        how = auto_scheduler.TuningOptions(
            num_measure_trials=trials,
            num_measures_per_round=DEFAULT_ROUND,
            runner=auto_scheduler.LocalRunner(repeat=1, enable_cpu_cache_flush=True),
            measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
            verbose=0,
        )
        scheduler.tune(how)
        (best,) = tally(log).best.values()
    return best.measurement.seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.dense_layout", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument(
        "--trials", type=int, default=64, help="for each layer, option and method (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the search, from 1 on (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    options = parser.parse_args(argv)
    autoscheduler_tvm().auto_scheduler.register_workload(layer)
    results = Results(options.out)
    choices = itertools.product(LAYERS, OPTIONS.items(), METHODS.items())
    for shape, (layout, option), (method, bundle) in choices:
        start = time.monotonic()
        seconds = tune(shape, option, bundle, options.trials, options.seed)
        speed = 2 * shape[0] * shape[1] * shape[2] / seconds / 1e9
        print(
            f"{shape}, weights {layout}, {method}: {seconds * 1e6:.0f} us, {speed:.1f} GFLOP/s",
            flush=True,
        )
        results.append(
            {
                "kind": "dense_layout",
                "layer": list(shape),
                "layout": layout,
                "method": method,
                "trials": options.trials,
                "seed": options.seed,
                "places": PLACES,
                "seconds": seconds,
                "search_seconds": time.monotonic() - start,
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                **machine.describe(),
            }
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
