"""Frozen world model in MetaSchedule's search."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings

NAME = "meta-wmsched"


def cost_model(settings: Settings, *, online: bool = False) -> Any:
    """MetaSchedule's `WorldModelCostModel` of the bundle."""
    from wmsched.metaschedule.cost_model import WorldModelCostModel

    return WorldModelCostModel(settings.bundle, online=online, round_size=settings.round_size)
