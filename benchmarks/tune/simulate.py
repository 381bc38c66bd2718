"""Simulated runs that replay recorded measurements: no TVM, no timing, seconds instead of hours.

Each method picks, round by round, the candidates it scores highest among the recorded programs of a
workload, and "measures" them by looking them up. It shows what a ranking is worth within a fixed
population, and lets the runner be tested; it says nothing about what the search would have proposed.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import methods, records
from benchmarks.methods import Settings
from benchmarks.plan import Run
from wmsched import zoo
from wmsched.schedules.types import Workload

logger = logging.getLogger("benchmarks")


def load(paths: list[str], *, least: int) -> dict[str, records.Measured]:
    """The workloads with at least `least` measured programs, by the zoo's name or the log's."""
    known = {key: row["name"] for row in zoo.rows() for key in zoo.keys(row)}
    found: dict[str, records.Measured] = {}
    small = 0
    for key, group in records.read(paths).items():
        if np.isfinite(group.seconds).sum() < least:
            small += 1
            continue
        name = known.get(key, Path(group.source).name.split(".")[0])
        unique, number = name, 2
        while unique in found:  # one log may hold several workloads
            unique, number = f"{name}-{number}", number + 1
        found[unique] = group
    if small:
        logger.warning("%d workloads have fewer than %d measured programs and are left out", small, least)
    return found


def simulate(run: Run, group: records.Measured, settings: Settings) -> dict[str, Any]:
    """Search the recorded programs of a workload; the fields it adds to the result line."""
    workload = Workload(key=group.key, target=group.target, hardware=group.hardware)
    scorer = methods.module(run.method).scorer(settings, workload)
    seconds = group.seconds
    left = np.arange(len(seconds))
    trials, spent, best, best_at, failed = 0, 0.0, float("inf"), -1, 0
    curve: list[list[float]] = []
    while trials < run.budget and left.size:
        wanted = min(run.round_size, run.budget - trials)
        scores = np.asarray(scorer.score([group.steps[i] for i in left]), dtype=np.float64)
        if scores.shape != left.shape or np.isnan(scores).any():
            return {
                "status": "error",
                "error": f"{run.method} gave {scores.shape} scores, NaN among them or too few",
            }
        chosen = left[np.argsort(-scores, kind="stable")[:wanted]]
        for i in chosen:
            trials += 1
            spent += group.costs[i]
            failed += not np.isfinite(seconds[i])
            if seconds[i] < best:
                best, best_at = float(seconds[i]), int(i)
                curve.append([trials, round(spent, 3), best])
        scorer.observe([group.steps[i] for i in chosen], seconds[chosen])
        left = np.setdiff1d(left, chosen)
    if best_at < 0:
        return {
            "status": "error",
            "error": f"all {trials} chosen programs had failed when they were recorded",
        }
    curve.append([trials, round(spent, 3), best])
    return {
        "status": "ok",
        "simulated": True,
        "trials": trials,
        "failed": int(failed),
        "search_seconds": spent,
        "model_share": None,
        "curve": curve,
        "best_seconds": best,
        "best_known": float(np.nanmin(seconds)),
        "best_record": json.dumps(group.steps[best_at]),
        "target": group.target,
    }
