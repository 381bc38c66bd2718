"""Curve of a run's best latencies, and the breakdown of its seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

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
