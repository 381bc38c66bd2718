"""The codec of steps whose scheduler is told by the steps themselves: AutoScheduler's, or a trace's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmsched.schedules import steps as ansor
from wmsched.schedules import traces
from wmsched.schedules.types import Action, Stage


def check_steps(steps: Any, *, place: str = "") -> None:
    """`ansor.check_steps` or `traces.check_steps`, by what the first step looks like."""
    looks = type(steps) is list and bool(steps) and type(steps[0]) is list and traces.is_trace(steps)
    (traces if looks else ansor).check_steps(steps, place=place)


def decode_steps(steps: Sequence[Sequence[Any]], stages: Sequence[Stage] = ()) -> list[Action]:
    """`ansor.decode_steps` or `traces.decode_steps`, by what the first step looks like."""
    return (traces if traces.is_trace(steps) else ansor).decode_steps(steps, stages)
