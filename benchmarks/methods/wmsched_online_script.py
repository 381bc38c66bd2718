"""Method `wmsched-script` with a model that also learns from the run's measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.methods import Settings, wmsched_script

NAME = "wmsched-online-script"


def scheduler(settings: Settings, tasks: Sequence[Any]) -> Any:
    """Our TaskScheduler with online=True."""
    return wmsched_script.scheduler(settings, tasks, online=True)
