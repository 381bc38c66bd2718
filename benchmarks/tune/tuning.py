"""Tuning run in a child process (see `benchmarks.tune.child`).

`benchmarks.run` starts it, with a time limit, and reads the outcome: what TVM does here, a crash included,
cannot take the benchmark down. The search is the one AutoScheduler's TaskScheduler does for a single task:
a SketchPolicy whose rounds of search, measurement and model update follow one another until the trials are
spent.
"""

from __future__ import annotations

import logging
import random
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import methods
from benchmarks.methods import Settings
from benchmarks.tune import child, parcels
from benchmarks.tune.curve import Curve, Stopwatch, outcome
from benchmarks.tune.emulated import emulated
from benchmarks.tune.measuring import Measurer, refused, search_task


def tune(spec: dict[str, Any]) -> dict[str, Any]:
    """Carry out the run that `spec` describes; the fields it adds to the result line."""
    from wmsched.toolchain.resolve import autoscheduler_tvm, is_cpu

    autoscheduler_tvm()
    from tvm import auto_scheduler

    from wmsched.ansor.runner import several_places
    from wmsched.ansor.workers import kept_workers
    from wmsched.measure.buffer_offsets import CALLS

    random.seed(spec["seed"])
    np.random.seed(spec["seed"])
    threads = int(spec.get("emulated_threads", 0))
    cores = parcels.cores(spec["target"]) if spec.get("parcel") else threads
    task = search_task(spec["row"], spec["target"], cores)
    if other := refused(spec.get("before", ""), str(task.target)):
        return other
    log = Path(spec["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)  # of a run that was killed half-way
    if methods.kin(spec["method"]) == methods.SCRIPT:
        from benchmarks.tune import user_script

        return user_script.tune(spec, task, log)
    places = int(spec.get("places", 1)) if is_cpu(task.target) else 1
    paired = places > 1 and not spec.get("alone")
    settings = Settings(**spec["settings"])
    ready = time.time()
    model = methods.module(spec["method"]).cost_model(settings)
    watch = Stopwatch(model)
    load_seconds = time.time() - ready

    measurer = Measurer(log, task.target)
    # SketchPolicy takes seed 0 for "none given"
    policy = auto_scheduler.SketchPolicy(task, program_cost_model=model, seed=spec["seed"] + 1, verbose=0)

    curve = Curve()
    best: tuple[Any, Any] | None = None
    with (
        kept_workers() if spec.get("keep_workers") else nullcontext(),
        several_places(places, paired=paired),
        emulated(threads),
    ):
        while curve.trials < spec["budget"]:
            wanted = min(spec["round_size"], spec["budget"] - curve.trials)
            inputs, results = policy.continue_search_one_round(wanted, measurer.program_measurer)
            if len(inputs) == 0:  # the space is exhausted
                break
            place = curve.add(results)
            if place is not None:
                best = inputs[place], results[place]
            print(f"trials {curve.trials}/{spec['budget']}, best {curve.best * 1e3:.4f} ms", flush=True)
        seconds = curve.finish()
    fields = outcome(curve, best, watch, seconds, task, model)
    return fields | {
        "load_seconds": load_seconds,
        "kept_workers": bool(spec.get("keep_workers")),
        "places": places,
        "calls": CALLS if places > 1 else 1,
        "paired": paired,
        "emulated_threads": threads,
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    child.answer(tune)
