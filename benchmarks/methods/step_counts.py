"""Baseline for simulated runs: boosted trees on counts of steps and sizes of splits. Needs no TVM.

It replaces the stock XGBModel, whose features need TVM's lowered program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods import Steps
from wmsched.schedules.grammar import AnnotationStep, PragmaStep, SplitStep, typed
from wmsched.schedules.loop_nest import ANNOTATIONS

CODES = ("AN", "FU", "PR", "RE", "SP", "FSP", "FFSP", "SA", "CA", "CI", "CR", "CHR", "CHW", "RF")
SPLITS = 10
LEVELS = 4


def row(steps: Steps) -> list[float]:
    """Counts of each step and annotation, the unroll limit, and log2 sizes of the first splits."""
    codes = dict.fromkeys(CODES, 0)
    annotations = [0] * len(ANNOTATIONS)
    unroll = 0.0
    sizes: list[float] = []
    for step in steps:
        code = step[0]
        codes[code] = codes.get(code, 0) + 1
        match typed(step):
            case AnnotationStep(annotation=number) if 0 <= number < len(ANNOTATIONS):
                annotations[number] += 1
            case PragmaStep(pragma=pragma) if "$" in pragma:
                unroll = max(unroll, math.log2(1 + int(pragma.rpartition("$")[2])))
            case SplitStep(lengths=inner) if len(sizes) < SPLITS * LEVELS:
                lengths = [math.log2(max(1, n or 1)) for n in inner[:LEVELS]]
                sizes += lengths + [-1.0] * (LEVELS - len(lengths))
    sizes += [-1.0] * (SPLITS * LEVELS - len(sizes))
    return [*(codes[c] for c in CODES), *annotations, unroll, *sizes[: SPLITS * LEVELS]]


class StepBooster:
    """XGBoost regression of best/seconds, a failed program being 0, over the rows of several workloads."""

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    @classmethod
    def fit(
        cls, groups: Iterable[tuple[Sequence[Steps], NDArray[np.float64]]], *, rounds: int = 60
    ) -> StepBooster:
        """Fit to (steps, seconds) of each workload; at least one time must be finite."""
        import xgboost

        rows: list[list[float]] = []
        labels: list[float] = []
        for steps, seconds in groups:
            best = np.nanmin(np.where(np.isfinite(seconds), seconds, np.nan))
            rows += [row(one) for one in steps]
            labels += np.where(np.isfinite(seconds), best / seconds, 0.0).tolist()
        params = {"max_depth": 6, "eta": 0.2, "objective": "reg:squarederror", "nthread": 1, "seed": 0}
        data = xgboost.DMatrix(np.array(rows), label=np.array(labels), nthread=1)
        return cls(xgboost.train(params, data, num_boost_round=rounds))

    def predict(self, steps: Sequence[Steps]) -> NDArray[np.float64]:
        """Predicted best/seconds, float64 [len(steps)]."""
        import xgboost

        data = xgboost.DMatrix(np.array([row(one) for one in steps]), nthread=1)
        return np.asarray(self._booster.predict(data), dtype=np.float64)
