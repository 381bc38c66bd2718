"""One tuning run, in a process of its own (see `benchmarks.tune.child`).

`benchmarks.run` starts it, with a time limit, and reads the outcome: what TVM does here, a crash included,
cannot take the benchmark down. The search is the one AutoScheduler's TaskScheduler does for a single task:
a SketchPolicy whose rounds of search, measurement and model update follow one another until the trials are
spent.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import methods
from benchmarks.methods import Settings
from benchmarks.tune import child, parcels
from benchmarks.tune.emulated import emulated
from benchmarks.tune.measuring import Measurer, refused, search_task

# What the world model's backend counts when it had nothing to say: such a run was a random search, not ours.
FATAL_PROBLEMS = ("preparing a task", "scoring a batch")


class Stopwatch:
    """Counts the seconds and candidates that pass through a cost model's predict and update."""

    def __init__(self, model: Any) -> None:
        self.predict_seconds = 0.0
        self.update_seconds = 0.0
        self.candidates = 0
        self.watches = model is not None
        if isinstance(getattr(model, "predict", None), Callable) and hasattr(model, "predict_stages"):  # type: ignore[arg-type]
            for name in ("predict", "predict_steps"):  # PythonBasedModel looks them up at each call
                if hasattr(model, name):
                    setattr(model, name, self._predict(getattr(model, name)))
            model.update = self._update(model.update)

    def _predict(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def predict(task: Any, states: Any, *more: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(task, states, *more)
            finally:
                self.predict_seconds += time.perf_counter() - start
                self.candidates += len(states)

        return predict

    def _update(self, inner: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def update(inputs: Any, results: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(inputs, results)
            finally:
                self.update_seconds += time.perf_counter() - start

        return update


class Curve:
    """Best latency so far against trials and wall time: a point at each improvement, and one at the end."""

    def __init__(self) -> None:
        self.points: list[list[float]] = []
        self.trials = 0
        self.failed = 0
        self.best = float("inf")
        self._start = time.time()

    def add(self, results: Any) -> int | None:
        """Take a round's results, in the order they were measured; the place of the new best one, if any."""
        place = None
        for index, result in enumerate(results):
            self.trials += 1
            costs = [float(getattr(cost, "value", cost)) for cost in result.costs]
            if int(result.error_no) != 0:
                self.failed += 1
                continue
            seconds = sum(costs) / len(costs)
            if 0 < seconds < self.best:
                self.best, place = seconds, index
                self.points.append([self.trials, round(float(result.timestamp) - self._start, 3), seconds])
        return place

    def finish(self) -> float:
        """Close the curve; the wall seconds since it was opened."""
        elapsed = time.time() - self._start
        if self.points:
            self.points.append([self.trials, round(elapsed, 3), self.best])
        return elapsed


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


def outcome(
    curve: Curve, best: tuple[Any, Any] | None, watch: Stopwatch, seconds: float, task: Any, model: Any
) -> dict[str, Any]:
    """The fields of the result line of a search that took so many seconds, whatever it was made of."""
    from tvm import auto_scheduler

    problems = dict(getattr(model, "problems", {}))
    fatal = [kind for kind in problems if kind.startswith(FATAL_PROBLEMS)]
    if fatal:
        return {
            "status": "error",
            "error": f"the cost model had nothing to say: {', '.join(fatal)}",
            "problems": problems,
        }
    if best is None:
        return {"status": "error", "error": f"none of {curve.trials} programs could be measured"}
    return {
        "status": "ok",
        "trials": curve.trials,
        "failed": curve.failed,
        "curve": curve.points,
        "best_seconds": curve.best,
        "best_record": auto_scheduler.measure_record.dump_record_to_string(*best).strip(),
        **told(watch, seconds, task, model),
    }


def told(watch: Stopwatch, seconds: float, task: Any, model: Any) -> dict[str, Any]:
    """What a result line says of a search, whatever it found."""
    import tvm

    spent = watch.predict_seconds + watch.update_seconds
    return {
        "search_seconds": seconds,
        "predict_seconds": watch.predict_seconds,
        "update_seconds": watch.update_seconds,
        "model_share": spent / seconds if watch.watches else None,
        "candidates": watch.candidates,
        "problems": dict(getattr(model, "problems", {})),
        "tvm": tvm.__version__,
        "target": str(task.target),
        # TVM takes half of an x86 machine's processors for hyper-threads, so this may be fewer than its cores
        "threads": int(tvm.runtime.num_threads()),
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    child.answer(tune)
