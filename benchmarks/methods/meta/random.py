"""MetaSchedule's search without a cost model."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings

NAME = "meta-random"


def cost_model(settings: Settings) -> Any:
    """MetaSchedule's RandomModel with the run's seed."""
    from tvm.s_tir.meta_schedule.cost_model import RandomModel

    return RandomModel(seed=settings.seed)
