"""World model in the script of `ansor-script`; only the class and its `cost_model=` differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.methods import Settings

NAME = "wmsched-script"


def scheduler(settings: Settings, tasks: Sequence[Any], **options: Any) -> Any:
    """Our TaskScheduler with its defaults, and other options where they are given."""
    from wmsched.ansor.task_scheduler import TaskScheduler

    return TaskScheduler(
        list(tasks), callbacks=[], cost_model=settings.bundle, seed=settings.seed + 1, **options
    )
