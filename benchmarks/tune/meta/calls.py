"""Calls of MetaSchedule: as in a user's script, or in a search where only the cost model differs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.methods import Settings
from benchmarks.tune.meta import stock
from wmsched.base.cores import usable_cores
from wmsched.toolchain.resolve import is_cpu

MIN_REPEAT_MS = 60  # with number=1 and repeat=1 TVM repeats until so much time has passed
LIMIT_SECONDS = 30.0  # MetaSchedule's own, for a build and for a run: a worker's start and imports are in it


class Way(NamedTuple):
    """What is called, and what is told of it.

    Attributes
    ----------
    tune_tir : callable
        Upstream's or one like it.
    given : dict
        Its arguments besides those that every run has.
    how : dict
        Fields of the result line that say what was done.
    told : callable (float) -> dict
        Those that say what the cost model took of so many seconds, and in "problems" what it could not do;
        for a run that is over.
    """

    tune_tir: Callable[..., Any]
    given: dict[str, Any]
    how: dict[str, Any]
    told: Callable[[float], dict[str, Any]]


def script(method: Any, settings: Settings) -> Way:
    """A method's `tune` with its defaults, whatever they are."""
    return Way(
        functools.partial(method.tune, settings),
        {},
        dict(method.HOW),
        lambda seconds: {"load_seconds": 0.0, "problems": {}},
    )


def search(method: Any, settings: Settings, spec: dict[str, Any], module: Any, target: Any) -> Way:
    """TVM's `tune_tir` with a method's cost model, and the space and strategy of methods that have one.

    Raises
    ------
    WmschedError
        Nothing is recorded of this program, where runs are simulated, or there is no such GPU.
    """
    from tvm.s_tir import meta_schedule as ms

    places = int(spec.get("places", 1)) if is_cpu(target) else 1
    paired = places > 1 and not spec.get("alone") and not spec.get("simulate")
    start = time.time()
    model, watch = stock.timed(method.cost_model(settings))
    load_seconds = time.time() - start
    own = hasattr(method, "strategy")
    builder, runner = _machine(spec, module, target, places, paired)

    def told(seconds: float) -> dict[str, Any]:
        problems = dict(getattr(watch.inner, "problems", {}))
        found: dict[str, Any] = {"load_seconds": load_seconds, "problems": problems}
        if own:  # one of ours asks the model by itself
            return found
        return found | {
            "predict_seconds": watch.predict_seconds,
            "update_seconds": watch.update_seconds,
            "model_share": (watch.predict_seconds + watch.update_seconds) / seconds,
            "candidates": watch.candidates,
        }

    given = {
        "num_trials_per_iter": spec["round_size"],
        "builder": builder,
        "runner": runner,
        "cost_model": model,
        "space": method.space(target) if hasattr(method, "space") else "post-order-apply",
        "strategy": method.strategy(watch.inner) if own else "evolutionary",
        "num_tuning_cores": usable_cores(),
    }
    return Way(ms.tune_tir, given, {"places": places, "paired": paired}, told)


def _machine(spec: dict[str, Any], module: Any, target: Any, places: int, paired: bool) -> tuple[Any, Any]:
    """Builder and runner: this machine's, those of `benchmarks.tune.meta.simulated`, or those of a parcel."""
    from tvm.s_tir import meta_schedule as ms

    from wmsched.metaschedule.measure.buffers import local_runner
    from wmsched.metaschedule.measure.builder import build

    if spec.get("parcel"):
        from data_builder.offline_measure.builder import ParcelBuilder, ParcelRunner

        return ParcelBuilder(Path(spec["parcel"])), ParcelRunner()
    if simulate := spec.get("simulate", ""):
        from benchmarks.tune.meta import simulated

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
