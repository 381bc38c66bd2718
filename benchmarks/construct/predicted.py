"""What a model would take with constructed schedules, by the ranker's own scores.

Each function's share of a model (`wmsched.construct.effort`) is scaled by what its first choice's margin says
against the other way's. `python -m benchmarks.construct.predicted MODEL.onnx ... --every 3` prints, for each
model, the time with efforts by share over that with the same effort for every function, and the core seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from wmsched.construct.effort import shares, sized
from wmsched.construct.named import TRAVERSALS
from wmsched.model.ranker import MARGIN_PER_DOUBLING
from wmsched.search.evolution import Evolution


def over(parts: Sequence[float], now: Sequence[float], before: Sequence[float]) -> float:
    """Return the predicted time of a model over another's, from shares and both ways' margins.

    >>> over([0.5, 0.5], [1.4, 0.0], [0.0, 0.0])
    0.75
    """
    times = [part * 2.0 ** ((was - is_) / MARGIN_PER_DOUBLING) for part, is_, was in zip(parts, now, before)]
    return math.fsum(times) / math.fsum(parts)


def compared(model: str, every: int, seeds: Sequence[int], world: Any, target: Any) -> dict[str, Any]:
    """Return the line of one model."""
    from wmsched.metaschedule.tasks import argument_bytes
    from wmsched.metaschedule.tasks import tasks as task_list
    from wmsched.relax.importers.load import load
    from wmsched.tune.prepare import SETTINGS, functions_of

    tasks = task_list(functions_of(load(model), target, dict.fromkeys(SETTINGS, True)), target)
    parts = shares([(task.weight, task.flop, sum(argument_bytes(task.mod))) for task in tasks])
    chosen = list(zip(tasks, parts))[::every]
    given = TRAVERSALS["evolution"]
    assert isinstance(given, Evolution)
    ways: dict[str, Callable[[float], Evolution]] = {
        "same": lambda share: given,
        "by_share": lambda share: sized(given, share),
    }
    margins: dict[str, list[float]] = {name: [] for name in ways}
    seconds = dict.fromkeys(ways, 0.0)
    weights = []
    for seed in seeds:
        for task, share in chosen:
            found = {}
            for name, way in ways.items():
                began = time.process_time()
                found[name] = first_margin(task, way(share), seed, world, target)
                seconds[name] += time.process_time() - began
            if all(map(math.isfinite, found.values())):
                weights.append(share)
                for name, margin in found.items():
                    margins[name].append(margin)
    return {
        "model": model,
        "functions": len(tasks),
        "compared": len(weights),
        "predicted_over_same": round(over(weights, margins["by_share"], margins["same"]), 4),
        "core_seconds": {name: round(spent, 2) for name, spent in seconds.items()},
    }


def first_margin(task: Any, evolution: Evolution, seed: int, world: Any, target: Any) -> float:
    """Return the margin of a task's first choice; NaN where it is not searched in the model."""
    from tvm.s_tir.meta_schedule.database import MemoryDatabase

    from wmsched.metaschedule.cost_model import WorldModelCostModel
    from wmsched.metaschedule.defaults import strategy_of
    from wmsched.metaschedule.task_scheduler import Search

    model = WorldModelCostModel(world, round_size=2)
    strategy = strategy_of(model, 2, target, evolution=evolution)
    nothing: Any = None  # is measured
    search = Search(
        [task], target, MemoryDatabase(), model, nothing, round_size=2, seed=seed, strategy=strategy
    )
    candidates, _ = search.choose(task, 2)
    (scores,) = (kept for _, kept in model._tasks.values())
    if not candidates or scores.reader is None:
        return math.nan
    read = scores.reader(candidates[:1])
    if not read.fine[0]:
        return math.nan
    return float(scores.scorer.judge_columns(*read.phi([0]))[0][0])


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="of the functions, the largest first")
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    from benchmarks.construct.measure import tools

    target, world, _ = tools("x86-meta")
    for model in asked.models:
        line = compared(model, asked.every, range(1, 1 + asked.seeds), world, target)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
