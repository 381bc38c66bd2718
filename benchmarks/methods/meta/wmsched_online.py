"""World model in MetaSchedule's search that also learns from the run's measurements."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings
from benchmarks.methods.meta import wmsched

NAME = "meta-wmsched-online"


def cost_model(settings: Settings) -> Any:
    """As `meta-wmsched`, with online=True."""
    return wmsched.cost_model(settings, online=True)
