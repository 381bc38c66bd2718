"""Seconds of the options of a graph's regions, with constructed schedules."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from wmsched.base.cores import unbound
from wmsched.metaschedule import tasks as task_list
from wmsched.relax.choices.regions import Variant
from wmsched.relax.passes.wide_fusion import shape_of
from wmsched.tune.latency import loaded
from wmsched.tune.run import Run
from wmsched.tune.schedules import ByRule, Compiled, Schedules, compilable, measured_in

__all__ = ["compiled", "measured_costs", "read_shapes", "timed_costs"]

ROUNDS = (5, 25)  # of all functions in turn, at least and at most
SECONDS = 10.0  # for more rounds than the least
QUARTILE = 0.25  # of the times: disturbances only add


def compiled(run: Run, schedules: Schedules, prepared: Any) -> Compiled:
    """Return a prepared module compiled with constructed schedules, or measured ones where there are.

    Raises
    ------
    WmschedError
        TVM cannot build it.
    """
    try:
        tasks = task_list.tasks(prepared, run.target.tvm)
    except task_list.NothingToTune:
        tasks = []
    return compilable(run, prepared, schedules.of(run, tasks), measured_in(run.options.out), ByRule())


def measured_costs(
    run: Run, schedules: Schedules, prepared: Any, variants: Sequence[Variant], folder: Path
) -> dict[str, dict[tuple[int, ...], float]]:
    """Return seconds of each class's options, by the class's key.

    All functions are called in turn, so that each finds the caches as the others leave them.

    Parameters
    ----------
    prepared : tvm.IRModule
        Of `wmsched.relax.choices.regions.variants`, prepared.
    """
    library = folder / "regions.so"
    compiled(run, schedules, prepared).link(library)
    return timed_costs(library, run.target.tvm, read_shapes(prepared, variants), variants, run.interrupted)


def read_shapes(prepared: Any, variants: Sequence[Variant]) -> dict[str, list[tuple[int, ...]]]:
    """Return the shapes of what each variant reads, by its name."""
    return {one.name: [shape_of(given) or () for given in prepared[one.name].params] for one in variants}


def timed_costs(
    library: Path,
    target: Any,
    shapes: Mapping[str, Sequence[tuple[int, ...]]],
    variants: Sequence[Variant],
    interrupted: Callable[[], bool] = lambda: False,
) -> dict[str, dict[tuple[int, ...], float]]:
    """Return the seconds of `measured_costs`, of a library that is written already.

    Parameters
    ----------
    shapes : of `read_shapes`; all is float32
    """
    machine, _ = loaded(library, target, [])
    arguments = _arguments(shapes, variants)
    found: dict[str, list[float]] = {one.name: [] for one in variants}
    with unbound():
        calls = {name: machine[name] for name in found}
        for name, call in calls.items():
            call(*arguments[name])
        began = time.perf_counter()
        while len(found[variants[0].name]) < ROUNDS[1]:
            if time.perf_counter() - began > SECONDS and len(found[variants[0].name]) >= ROUNDS[0]:
                break
            if interrupted():
                raise KeyboardInterrupt
            for name, call in calls.items():
                start = time.perf_counter()
                call(*arguments[name])
                found[name].append(time.perf_counter() - start)
    costs: dict[str, dict[tuple[int, ...], float]] = {}
    for one in variants:
        costs.setdefault(one.region, {})[one.choices] = float(np.quantile(found[one.name], QUARTILE))
    return costs


def _arguments(
    shapes: Mapping[str, Sequence[tuple[int, ...]]], variants: Sequence[Variant]
) -> Mapping[str, list[Any]]:
    """Return random arguments of each function; those of one region read the same."""
    random = np.random.default_rng(0)
    held: dict[tuple[str, int], Any] = {}
    found: dict[str, list[Any]] = {}
    for one in variants:
        found[one.name] = []
        for k, shape in enumerate(shapes[one.name]):
            if (one.region, k) not in held:
                data = random.standard_normal(shape).astype("float32")
                held[one.region, k] = tvm.runtime.tensor(data)
            found[one.name].append(held[one.region, k])
    return found
