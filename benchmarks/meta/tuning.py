"""One run of MetaSchedule's search in a process of its own, as `benchmarks.tuning` does AutoScheduler's.

`tune_tir` with the stock space, mutators and evolutionary strategy; only the cost model differs (and the
strategy of methods that have one). A script's is called with its defaults, whatever they are. Programs are
measured by 60 ms of repeats after one flush of the caches, where AutoScheduler's runner times one cold call.
MetaSchedule hands results over by rounds, so the curve over time has one time for each round.
"""

from __future__ import annotations

import functools
import json
import logging
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import child, methods
from benchmarks.measuring import refused
from benchmarks.meta import deferred, stock
from benchmarks.methods import Settings
from wmsched.cores import usable_cores
from wmsched.errors import WmschedError
from wmsched.resolve import is_cpu

MIN_REPEAT_MS = 60  # with number=1 and repeat=1 TVM repeats until so much time has passed
LIMIT_SECONDS = 30.0  # MetaSchedule's own, for a build and for a run: a worker's start and imports are in it


def tune(spec: dict[str, Any]) -> dict[str, Any]:
    """Carry out the run that `spec` describes; the fields it adds to the result line."""
    tvm = stock.meta_tvm()
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    from benchmarks.meta import workloads
    from wmsched.backends.meta_intrinsics import import_intrinsics

    random.seed(spec["seed"])
    np.random.seed(spec["seed"])
    module = workloads.module(spec["row"]["type"])
    target = stock.target(spec["target"])
    if other := refused(spec.get("before", ""), stock.text(target)):
        return other
    places = int(spec.get("places", 1)) if is_cpu(target) else 1
    paired = places > 1 and not spec.get("alone") and not spec.get("simulate")
    import_intrinsics(target)  # TuneContext would do it on the clock
    settings = Settings(**spec["settings"])
    ready = time.time()
    method = methods.module(spec["method"])
    script = hasattr(method, "tune")
    model, watch = (None, stock.Watch(None)) if script else stock.timed(method.cost_model(settings))
    searches = script or hasattr(method, "strategy")
    load_seconds = time.time() - ready
    curve = Curve()

    @derived_object
    class Watch(ms.measure_callback.PyMeasureCallback):
        """Hears of each round's results."""

        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, ran: Any) -> None:
            curve.add(ran)
            print(f"trials {curve.trials}/{spec['budget']}, best {curve.best * 1e3:.4f} ms", flush=True)

    log = Path(spec["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    described = log.with_suffix(".workload.json")
    for path in (log, described):
        path.unlink(missing_ok=True)  # of a run that was killed half-way
    work = log.with_suffix(".work")
    parcel = spec.get("parcel", "")
    proposed: list[dict[str, Any]] = []
    # the default callbacks take each library away when it was measured: in a parcel it is yet to be
    others = (
        [deferred.callback(proposed)] if parcel else ms.measure_callback.MeasureCallback.create("default")
    )
    database = ms.database.JSONDatabase(path_workload=str(described), path_tuning_record=str(log))
    given: dict[str, Any] = {
        "database": database,
        "measure_callbacks": [Watch(), *others],
        "seed": spec["seed"] + 1,  # 0 may mean "none given", as in AutoScheduler's
    }
    if not script:
        try:
            builder, runner = _machine(spec, module, target, places, paired)
        except WmschedError as error:  # nothing recorded of this program, or no such GPU
            return {"status": "error", "error": str(error), "problems": {}}
        given |= {
            "num_trials_per_iter": spec["round_size"],
            "builder": builder,
            "runner": runner,
            "cost_model": model,
            "space": method.space(target) if hasattr(method, "space") else "post-order-apply",
            "strategy": method.strategy(watch.inner) if searches else "evolutionary",
            "num_tuning_cores": usable_cores(),
        }
    tune_tir = functools.partial(method.tune, settings) if script else ms.tune_tir
    curve.start()
    tune_tir(module, target, str(work), spec["budget"], **given)
    seconds = curve.finish()
    shutil.rmtree(work, ignore_errors=True)  # MetaSchedule's own text logs, megabytes
    problems = dict(getattr(watch.inner, "problems", {}))
    told = {
        "search_seconds": seconds,
        "load_seconds": load_seconds,
        **({} if searches else _share(watch, seconds)),
        "problems": problems,
        "tvm": tvm.__version__,
        "target": stock.text(target),
    }
    if parcel:
        return deferred.outcome(proposed, Path(parcel), spec["task"], {"search": deferred.META, **told})
    records = [record for record in database.get_all_tuning_records() if record.run_secs]
    times = [float(np.mean([float(x) for x in record.run_secs])) for record in records]
    usable = [t if t < stock.FAILED else np.inf for t in times]
    if not usable or not np.isfinite(min(usable)):
        return {
            "status": "error",
            "error": f"none of {curve.trials} programs could be measured; the first: {curve.reason}",
            "problems": problems,
        }
    best = int(np.argmin(usable))
    return {
        "status": "ok",
        "search": "meta_schedule",
        **(method.HOW if script else {"places": places, "paired": paired}),
        "trials": curve.trials,
        "failed": curve.failed,
        **told,
        "curve": curve.points,
        "best_seconds": usable[best],
        "best_record": json.dumps(stock.row(records[best])),
        "threads": stock.threads(),
        **({"simulated": True} if spec.get("simulate") else {}),
    }


def _share(watch: stock.Watch, seconds: float) -> dict[str, Any]:
    """What the cost model was asked for, by TVM's search: one of ours asks it by itself."""
    return {
        "predict_seconds": watch.predict_seconds,
        "update_seconds": watch.update_seconds,
        "model_share": (watch.predict_seconds + watch.update_seconds) / seconds,
        "candidates": watch.candidates,
    }


def _machine(spec: dict[str, Any], module: Any, target: Any, places: int, paired: bool) -> tuple[Any, Any]:
    """Builder and runner: this machine's, those of `benchmarks.meta.simulated`, or those of a parcel."""
    from tvm.s_tir import meta_schedule as ms

    from wmsched.backends.meta_build import build
    from wmsched.backends.meta_places import local_runner

    if spec.get("parcel"):
        from wmsched.backends.parcel import ParcelBuilder, ParcelRunner

        return ParcelBuilder(Path(spec["parcel"])), ParcelRunner()
    if simulate := spec.get("simulate", ""):
        from benchmarks.meta import simulated

        return simulated.machine(simulated.timing(simulate, module, target))
    runner = local_runner(
        places=places,
        repeat=1,
        min_repeat_ms=MIN_REPEAT_MS,
        cache_flush=is_cpu(target),  # the function is a processor's
        timeout=LIMIT_SECONDS,
        paired=paired,
    )
    return ms.builder.LocalBuilder(timeout_sec=LIMIT_SECONDS, f_build=build), runner


class Curve:
    """Best latency so far against trials and wall time; a point at each improvement, and one at the end."""

    def __init__(self) -> None:
        self.points: list[list[float]] = []
        self.trials = self.failed = 0
        self.best = float("inf")
        self.reason = ""  # of the first failure
        self._start = time.time()

    def start(self) -> None:
        """From here on the seconds count."""
        self._start = time.time()

    def add(self, results: Any) -> None:
        """Take a round's runner results, in the order they were measured."""
        elapsed = round(time.time() - self._start, 3)
        for result in results:
            self.trials += 1
            if result.error_msg is not None or not result.run_secs:
                self.failed += 1
                self.reason = self.reason or str(result.error_msg)[-300:]
                continue
            seconds = float(np.mean([float(x) for x in result.run_secs]))
            if 0 < seconds < self.best:
                self.best = seconds
                self.points.append([self.trials, elapsed, seconds])

    def finish(self) -> float:
        """Close the curve; the wall seconds since it was opened."""
        elapsed = time.time() - self._start
        if self.points:
            self.points.append([self.trials, round(elapsed, 3), self.best])
        return elapsed


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    child.answer(tune)
