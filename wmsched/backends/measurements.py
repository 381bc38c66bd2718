"""What AutoScheduler's measurer found, as wmsched's `Measurement`."""

from __future__ import annotations

from typing import Any

from wmsched.schedules.types import Measurement


def measurement_of(result: Any) -> Measurement:
    """A `tvm.auto_scheduler.MeasureResult`'s numbers."""
    costs = tuple(float(cost) for cost in result.costs)
    return Measurement(costs, int(result.error_no), float(result.all_cost), float(result.timestamp))
