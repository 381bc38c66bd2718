"""Frozen world model, as shipped or trained."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings

NAME = "wmsched"
ONLINE = False


def cost_model(settings: Settings, *, online: bool = ONLINE) -> Any:
    """`WorldModelCostModel` of the bundle."""
    from wmsched.ansor.task_scheduler import WorldModelCostModel

    return WorldModelCostModel(settings.bundle, online=online, round_size=settings.round_size)


def scorer(settings: Settings, workload: Any, *, online: bool = ONLINE) -> Any:
    """The bundle's scorer of a workload without its program text: the actions and the hardware remain."""
    from wmsched.model.world_model import WorldModel

    return WorldModel.from_pretrained(settings.bundle, online=online).task(workload, "")
