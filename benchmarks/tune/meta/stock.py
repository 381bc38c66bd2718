"""Helpers on MetaSchedule's TVM for tuning and the second measurement."""

from __future__ import annotations

import platform
import time
from typing import Any

from wmsched.base.cores import name_threads
from wmsched.toolchain.resolve import meta_schedule_tvm

FAILED = 1e9  # seconds; what TVM writes down for a program that could not be measured is larger


def meta_tvm() -> Any:
    """MetaSchedule's TVM, told its number of threads for all methods alike
    (`wmsched.base.cores.name_threads`).

    Raises
    ------
    EnvironmentProblem
        Another one is imported.
    """
    import xgboost  # noqa: F401  # before tvm: the other order has ended in "free(): invalid pointer"

    tvm = meta_schedule_tvm()
    name_threads(tvm)
    return tvm


def target(text: str) -> Any:
    """The target given as MetaSchedule's JSON, or this machine's processor for ""."""
    import json

    from tvm.target import Target

    from wmsched.toolchain.targets import meta_host_target

    if text:
        return Target(json.loads(text) if text.startswith("{") else text)
    return Target(meta_host_target() | {"mtriple": f"{platform.machine()}-linux-gnu"})


def text(target: Any) -> str:
    """A target as it is written into a result line."""
    return str(target)


def threads() -> int | None:
    """Threads a measured program runs on; None where TVM does not tell."""
    import tvm

    count = tvm.get_global_func("runtime.NumThreads", allow_missing=True)
    return int(count()) if count is not None else None


def row(record: Any) -> list[Any]:
    """A `TuningRecord` as a line of a database has it, without the number of its workload.

    Its own `as_json` knows no index maps, which layout transformations hold.
    """
    from wmsched.metaschedule.trace_reader import described, plain, trace_json

    seconds = [float(x) for x in record.run_secs or ()]
    arguments = described(record.args_info or ())
    return [trace_json(record.trace), seconds, plain(record.target.export()), arguments]


class Watch:
    """Seconds and candidates that passed through a cost model."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.predict_seconds = 0.0
        self.update_seconds = 0.0
        self.candidates = 0


def timed(model: Any) -> tuple[Any, Watch]:
    """A cost model that does what `model` does, and the count of its time."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel

    watch = Watch(
        getattr(model, "_inst", model)
    )  # the Python object behind a derived one, without the detour

    @derived_object
    class Timed(PyCostModel):
        """Hands everything on."""

        def __init__(self) -> None:
            super().__init__()
            self.kept = model  # the derived object is only referred to weakly by its inner half

        def load(self, path: str) -> None:
            watch.inner.load(path)

        def save(self, path: str) -> None:
            watch.inner.save(path)

        def update(self, context: Any, candidates: Any, results: Any) -> None:
            start = time.perf_counter()
            try:
                watch.inner.update(context, candidates, results)
            finally:
                watch.update_seconds += time.perf_counter() - start

        def predict(self, context: Any, candidates: Any) -> Any:
            start = time.perf_counter()
            try:
                return watch.inner.predict(context, candidates)
            finally:
                watch.predict_seconds += time.perf_counter() - start
                watch.candidates += len(candidates)

    return Timed(), watch
