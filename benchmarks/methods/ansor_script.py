"""Stock AutoScheduler as in TVM's tutorials: upstream's TaskScheduler with its defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.methods import Settings

NAME = "ansor-script"


def scheduler(settings: Settings, tasks: Sequence[Any]) -> Any:
    """Upstream's TaskScheduler, which makes an XGBModel; its searches draw their seeds from `random`."""
    from tvm import auto_scheduler

    return auto_scheduler.TaskScheduler(list(tasks), callbacks=[])  # not the ones that print and write files
