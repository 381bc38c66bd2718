"""One run of MetaSchedule's search in a process of its own, as `benchmarks.tune.tuning` does AutoScheduler's.

`tune_tir` with the stock space, mutators and evolutionary strategy, or as a script calls it (`ways`).
Programs are measured by 60 ms of repeats, shared out among the sets of buffers (`--places`), after a flush of
the caches each, where AutoScheduler's runner times cold calls. MetaSchedule hands results over by rounds, so
the curve over time has one time for each round.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import methods
from benchmarks.methods import Settings
from benchmarks.tune import child
from benchmarks.tune.measuring import refused
from benchmarks.tune.meta import calls, deferred, stock
from wmsched.base.errors import WmschedError


def tune(spec: dict[str, Any]) -> dict[str, Any]:
    """Carry out the run that `spec` describes; the fields it adds to the result line."""
    tvm = stock.meta_tvm()
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    from benchmarks.tune.meta import workloads
    from wmsched.metaschedule.intrinsics import import_intrinsics

    random.seed(spec["seed"])
    np.random.seed(spec["seed"])
    module = workloads.module(spec["row"]["type"])
    target = stock.target(spec["target"])
    if other := refused(spec.get("before", ""), stock.text(target)):
        return other
    import_intrinsics(target)  # TuneContext would do it on the clock
    settings = Settings(**spec["settings"])
    method = methods.module(spec["method"])
    try:
        if hasattr(method, "tune"):
            way = calls.script(method, settings)
        else:
            way = calls.search(method, settings, spec, module, target)
    except WmschedError as error:
        return {"status": "error", "error": str(error), "problems": {}}
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
    curve.start()
    way.tune_tir(
        module,
        target,
        str(work),
        spec["budget"],
        database=database,
        measure_callbacks=[Watch(), *others],
        seed=spec["seed"] + 1,  # 0 may mean "none given", as in AutoScheduler's
        **way.given,
    )
    seconds = curve.finish()
    shutil.rmtree(work, ignore_errors=True)  # MetaSchedule's own text logs, megabytes
    told = {
        "search_seconds": seconds,
        **way.told(seconds),
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
            "problems": told["problems"],
        }
    best = int(np.argmin(usable))
    return {
        "status": "ok",
        "search": "meta_schedule",
        **way.how,
        "trials": curve.trials,
        "failed": curve.failed,
        **told,
        "curve": curve.points,
        "best_seconds": usable[best],
        "best_record": json.dumps(stock.row(records[best])),
        "threads": stock.threads(),
        **({"simulated": True} if spec.get("simulate") else {}),
    }


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
