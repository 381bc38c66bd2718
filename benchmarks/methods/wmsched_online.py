"""World model that also learns from the run's measurements."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings, wmsched

NAME = "wmsched-online"


def cost_model(settings: Settings) -> Any:
    """As `wmsched`, with online=True."""
    return wmsched.cost_model(settings, online=True)


def scorer(settings: Settings, workload: Any) -> Any:
    """As `wmsched`, with online=True."""
    return wmsched.scorer(settings, workload, online=True)
