"""Tuning run like a user's script: a whole `TaskScheduler` with its defaults.

The script is that of TVM's tutorial "Auto-scheduling a Neural Network for x86 CPU": `TuningOptions` with the
number of trials, a log and ``LocalRunner(repeat=10, enable_cpu_cache_flush=True)``. `benchmarks.tune.tuning`
sets methods against each other that differ in the cost model alone; here each is as it comes, so rounds and
timing differ as well, and how candidates are compiled: upstream makes one round of 64, takes the mean of ten
calls on one set of buffers and has the C library compute exp and tanh, ours does what the defaults of its
`TaskScheduler` say. Schedules are measured again as they were built in the search ("vector_math").
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import methods
from benchmarks.methods import Settings
from benchmarks.tune.measuring import local_runner
from benchmarks.tune.parcels import parcel

REPEAT = 10  # the tutorial's


def tune(spec: dict[str, Any], task: Any, log: Path) -> dict[str, Any]:
    """Carry out the run that `spec` describes, of its task and to its log; fields of the result line.

    "calls" are those that make a candidate's time on one set of buffers: upstream's mean, ours the median.
    """
    from tvm import auto_scheduler

    from benchmarks.tune.curve import Curve, Stopwatch, outcome, told
    from wmsched.measure.buffer_offsets import CALLS
    from wmsched.toolchain.resolve import is_cpu

    method, settings = methods.module(spec["method"]), Settings(**spec["settings"])
    if hasattr(method, "prepare"):
        method.prepare(settings)
    curve = Curve()  # the loading of a bundle is the method's
    scheduler = method.scheduler(settings, [task])
    model = getattr(scheduler, "cost_model", None)  # upstream makes its own only when it starts
    watch = Stopwatch(model)
    if spec.get("parcel"):  # nothing is known of a round before the next: there is one
        scheduler.rounds = 1
    best: list[Any] = []

    class Follow(auto_scheduler.measure.PythonBasedMeasureCallback):
        """Takes what is measured into the curve."""

        def callback(self, policy: Any, inputs: Any, results: Any) -> None:
            place = curve.add(results)
            if place is not None:
                best[:] = inputs[place], results[place]

    runner, server = local_runner(task.target, repeat=REPEAT)
    options = auto_scheduler.TuningOptions(
        num_measure_trials=spec["budget"],
        runner=runner,
        measure_callbacks=[auto_scheduler.RecordToFile(str(log)), Follow()],
        verbose=0,
    )
    with parcel(spec.get("parcel", "")) as taken:
        scheduler.tune(options)
    seconds = curve.finish()
    del server
    # upstream's has one set of buffers, and keeps no processes; on another machine there is one too
    places = getattr(scheduler, "places", 1) if taken is None else 1
    how = {
        "kept_workers": getattr(scheduler, "keep_workers", False),
        "places": places,
        "paired": places > 1 and getattr(scheduler, "paired", False),
        "vector_math": getattr(scheduler, "vector_math", False),
        "calls": CALLS if places > 1 or taken else REPEAT if is_cpu(task.target) else 1,
    }
    if taken is not None:
        return taken.outcome(spec["task"], spec["budget"], told(watch, seconds, task, model) | how)
    return outcome(curve, (best[0], best[1]) if best else None, watch, seconds, task, model) | how
