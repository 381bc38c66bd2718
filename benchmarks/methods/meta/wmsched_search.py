"""World model in MetaSchedule with our search strategy; the stock one takes most of a run's time."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings
from benchmarks.methods.meta import wmsched

NAME = "meta-wmsched-search"


def cost_model(settings: Settings) -> Any:
    """As `meta-wmsched`."""
    return wmsched.cost_model(settings)


def strategy(model: Any) -> Any:
    """The search in the model."""
    from wmsched.metaschedule.search_strategy import drawn_search

    return drawn_search(model)
