"""Codec for steps of either scheduler, which it recognises by the steps themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmsched.schedules import steps as ansor
from wmsched.schedules import traces
from wmsched.schedules.types import Action, Stage


def check_steps(steps: Any, *, place: str = "") -> None:
    """Check steps with `steps.check_steps` or `traces.check_steps`, by the form of the first step."""
    looks = type(steps) is list and bool(steps) and type(steps[0]) is list and traces.is_trace(steps)
    (traces if looks else ansor).check_steps(steps, place=place)


def decode_steps(steps: Sequence[Sequence[Any]], stages: Sequence[Stage] = ()) -> list[Action]:
    """Decode steps with `steps.decode_steps` or `traces.decode_steps`, by the form of the first step."""
    return (traces if traces.is_trace(steps) else ansor).decode_steps(steps, stages)
