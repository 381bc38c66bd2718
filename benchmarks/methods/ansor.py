"""Stock AutoScheduler: its XGBModel, trained on this run's measurements only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods import Settings, Steps
from benchmarks.methods.step_counts import StepBooster

NAME = "ansor"


def cost_model(settings: Settings) -> Any:
    """XGBModel as `TaskScheduler` makes it for one task: random until it has measured more than one round."""
    from tvm import auto_scheduler

    return auto_scheduler.XGBModel(num_warmup_sample=settings.round_size)


class Online:
    """In simulation: a regression fitted to the run's own measurements after each round, random before."""

    def __init__(self, settings: Settings) -> None:
        self._rng = np.random.default_rng(settings.seed)
        self._warm_up = settings.round_size
        self._steps: list[Steps] = []
        self._seconds: list[float] = []
        self._booster: StepBooster | None = None

    def score(self, steps: Sequence[Steps]) -> NDArray[np.float64]:
        if self._booster is None:
            return self._rng.random(len(steps))
        return self._booster.predict(steps)

    def observe(self, steps: Sequence[Steps], seconds: NDArray[np.float64]) -> None:
        self._steps += steps
        self._seconds += seconds.tolist()
        if len(self._steps) > self._warm_up and np.isfinite(self._seconds).any():
            self._booster = StepBooster.fit([(self._steps, np.array(self._seconds))])


def scorer(settings: Settings, workload: Any) -> Online:
    """The stock model's place in a simulation (its features need TVM, so they are counts of steps here)."""
    return Online(settings)
