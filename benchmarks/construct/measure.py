"""One task: its schedules constructed in every way, built, and timed in turns in this process."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.construct.table import KIND
from benchmarks.construct.variants import EVOLUTION, VARIANTS
from benchmarks.tune.meta import workloads
from wmsched.base.cores import usable_cores
from wmsched.construct import Draw
from wmsched.metaschedule.construct import construct
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.tasks import Task
from wmsched.toolchain import parallel_launch

BUILD_SECONDS = 60.0  # of one schedule, at most
AT_LEAST = 0.02  # seconds of calls that make one timing
SIFTING = 2  # rounds after which the pool's slow schedules are timed no more
SLOW = 1.3  # times the fastest
RANKS = 2  # schedules of each variant: the second is for a first that does not build


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a task is measured.

    Parameters
    ----------
    bundle : str
    pool : int
        Of the model's first distinct schedules, which the best known one is sought among.
    rounds : int
        Timings of each schedule.
    seed : int
        Of the traversals.
    """

    bundle: str = "x86-meta"
    pool: int = 32
    rounds: int = 7
    seed: int = 1


class Schedules:
    """Different scheduled programs of one task, by numbers."""

    def __init__(self) -> None:
        self.candidates: list[Any] = []
        self._numbers: dict[str, int] = {}

    def add(self, record: Any) -> int:
        """Return the number of a record's program."""
        from tvm.s_tir.meta_schedule.utils import shash2hex

        candidate = record.as_measure_candidate()
        key = shash2hex(candidate.sch.mod)
        if key not in self._numbers:
            self._numbers[key] = len(self.candidates)
            self.candidates.append(candidate)
        return self._numbers[key]


def measure(
    task: str, names: Sequence[str], settings: Settings, target: Any, world: Any, builder: Any
) -> dict[str, Any]:
    """Return the line of one task.

    Parameters
    ----------
    names : sequence of str
        Of `VARIANTS`.
    world : WorldModel
        Loaded once: the time of that is no part of a function's.
    builder : KeptBuilder
    """
    mod, schedules = workloads.module(task), Schedules()

    def constructed(traversal: Any, count: int, **how: Any) -> tuple[list[int], float, str]:
        began = time.process_time()
        (found,) = construct(
            [Task(task, mod)],
            target,
            lambda: WorldModelCostModel(world, round_size=count),
            count=count,
            seed=settings.seed,
            traversal=traversal,
            **how,
        )
        spent = time.process_time() - began
        return [schedules.add(record) for record in found.records], spent, found.why

    _, spaces, _ = constructed(Draw(16), RANKS)  # the space alone, and what is compiled at first use
    _, spaces, _ = constructed(Draw(16), RANKS)
    ways: dict[str, tuple[list[int], float, str]] = {}
    with fallbacks() as told:
        for name in names:
            # where TVM searches by itself no traversal is asked, and the first way is that of all
            ways[name] = (
                next(iter(ways.values()))
                if told
                else constructed(VARIANTS[name].traversal, RANKS, choice=VARIANTS[name].choice)
            )
        pool, _, _ = constructed(EVOLUTION, settings.pool)
    began = time.monotonic()
    calls, problems = build(schedules.candidates, target, builder)
    built = time.monotonic() - began
    first = {
        name: next((number for number in numbers if number in calls), None)
        for name, (numbers, _, _) in ways.items()
    }
    kept = {number for number in first.values() if number is not None}
    ranked = [number for number in dict.fromkeys(pool) if number in calls]
    turns = timed(
        {number: calls[number] for number in dict.fromkeys([*kept, *ranked])}, kept, settings.rounds
    )
    return {
        "kind": KIND,
        "task": task,
        "bundle": settings.bundle,
        "seed": settings.seed,
        "rounds": settings.rounds,
        "space_core_seconds": round(spaces, 3),
        "build_seconds": round(built, 2),
        "tvm_searches": told[0] if told else "",
        "variants": {
            name: {
                "schedule": first[name],
                "core_seconds": round(spent, 3),
                "why": why or problems.get(numbers[0] if numbers else -1, ""),
            }
            for name, (numbers, spent, why) in ways.items()
        },
        "pool": ranked,
        "seconds": {str(number): float(f"{statistics.median(times):.6g}") for number, times in turns.items()},
        "turns": {str(number): [float(f"{each:.4g}") for each in turns[number]] for number in sorted(kept)},
    }


@contextlib.contextmanager
def fallbacks() -> Iterator[list[str]]:
    """Collect why searches in the model, meanwhile, leave a task to TVM's."""
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if (said := record.getMessage()).endswith("TVM searches by itself"):
                told.append(said)

    logger, listener = logging.getLogger("wmsched"), Listener()
    before = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.DEBUG)
    try:
        yield told
    finally:
        logger.setLevel(before)
        logger.removeHandler(listener)


def build(
    candidates: Sequence[Any], target: Any, builder: Any
) -> tuple[dict[int, Callable[[int], float]], dict[int, str]]:
    """Build programs in parallel and load them.

    Returns
    -------
    calls : dict of int to callable (number) -> seconds of a call, of so many
        Without those that do not build.
    problems : dict of int to str
        Why those do not.
    """
    import tvm
    from tvm.s_tir.meta_schedule.builder import BuilderInput

    device, fill = tvm.cpu(0), np.random.default_rng(0)
    arrays: dict[tuple[Any, ...], Any] = {}
    calls: dict[int, Callable[[int], float]] = {}
    problems: dict[int, str] = {}

    def argument(place: int, info: Any) -> Any:
        shape, dtype = tuple(int(n) for n in info.shape), str(info.dtype)
        if (place, shape, dtype) not in arrays:
            arrays[place, shape, dtype] = tvm.runtime.tensor(fill.random(shape).astype(dtype), device)
        return arrays[place, shape, dtype]

    inputs = [BuilderInput(candidate.sch.mod, target) for candidate in candidates]
    for number, (candidate, result) in enumerate(zip(candidates, builder.build(inputs))):
        if result.error_msg:
            problems[number] = str(result.error_msg).strip()[-200:]
            continue
        path = Path(str(result.artifact_path))
        module = tvm.runtime.load_module(os.fspath(path))
        parallel_launch.install(path, compared=True)
        given = [argument(place, info) for place, info in enumerate(candidate.args_info)]
        calls[number] = _caller(module, device, given)
        shutil.rmtree(path.parent, ignore_errors=True)  # what is loaded stays
    return calls, problems


def _caller(module: Any, device: Any, arguments: Sequence[Any]) -> Callable[[int], float]:
    def call(number: int) -> float:
        timer = module.time_evaluator(module.entry_name, device, number=number, repeat=1)
        return float(timer(*arguments).results[0])

    return call


def timed(calls: Mapping[int, Callable[[int], float]], kept: set[int], rounds: int) -> dict[int, list[float]]:
    """Return each program's seconds of a call by round, all in turns, in another order each round.

    Those that are not `kept` and slower than `SLOW` after `SIFTING` rounds are timed no more.
    """
    counts = {}
    for number, call in calls.items():
        call(1)
        counts[number] = max(1, round(AT_LEAST / max(call(2), 1e-7)))
    times: dict[int, list[float]] = {number: [] for number in calls}
    rng, now = random.Random(0), list(calls)
    for done in range(rounds):
        if done == SIFTING:
            middles = {number: statistics.median(found) for number, found in times.items()}
            most = SLOW * min(middles.values(), default=0.0)
            now = [number for number in now if number in kept or middles[number] <= most]
        for number in rng.sample(now, len(now)):
            times[number].append(calls[number](counts[number]))
    return times


def tools(bundle: str) -> tuple[Any, Any, Any]:
    """Return this machine's target, a loaded model and a builder as `wmsched compile` builds."""
    from wmsched.metaschedule.intrinsics import import_intrinsics
    from wmsched.metaschedule.measure.builder import KeptBuilder, build_with_vector_math
    from wmsched.search.guarded_scoring import load_world_model
    from wmsched.toolchain.targets import meta_target

    target = meta_target(None)
    import_intrinsics(target)
    builder = KeptBuilder(
        max_workers=usable_cores(), timeout_sec=BUILD_SECONDS, f_build=build_with_vector_math, torch=False
    )
    return target, load_world_model(bundle, online=False), builder
