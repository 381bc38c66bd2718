"""The search without a cost model: every candidate is as good as any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods import Settings, Steps

NAME = "random"


def cost_model(settings: Settings) -> Any:
    """AutoScheduler's RandomModel; its numbers come from numpy's global generator, which the run seeds."""
    from tvm import auto_scheduler

    return auto_scheduler.RandomModel()


class Uniform:
    """Scores drawn from the run's seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def score(self, steps: Sequence[Steps]) -> NDArray[np.float64]:
        return self._rng.random(len(steps))

    def observe(self, steps: Sequence[Steps], seconds: NDArray[np.float64]) -> None:
        pass


def scorer(settings: Settings, workload: Any) -> Uniform:
    """The same in simulation."""
    return Uniform(settings.seed)
