"""World model with our search strategy on a GPU, in MetaSchedule's design spaces plus split-K."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings
from benchmarks.methods.meta import wmsched_search

NAME = "meta-wmsched-parts"


def cost_model(settings: Settings) -> Any:
    """As `meta-wmsched`."""
    return wmsched_search.cost_model(settings)


def strategy(model: Any) -> Any:
    """As `meta-wmsched-search`."""
    return wmsched_search.strategy(model)


def space(target: Any) -> Any:
    """MetaSchedule's spaces and ours."""
    from wmsched.metaschedule.rules.spaces import space_generator

    return space_generator(target)
