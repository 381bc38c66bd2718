"""TenSet in a script of TVM's tutorials: upstream's TaskScheduler with a pretrained XGBModel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.methods import Settings, tenset

NAME = "tenset-script"


def prepare(settings: Settings) -> None:
    """Fit the model, if that has not been done: minutes that are no search's."""
    tenset.fitted(settings)


def scheduler(settings: Settings, tasks: Sequence[Any]) -> Any:
    """Upstream's, with the model of `tenset` as its `load_model_file=`; it fits anew after a round of 64."""
    from tvm import auto_scheduler

    return auto_scheduler.TaskScheduler(
        list(tasks), load_model_file=str(tenset.fitted(settings)), callbacks=[]
    )
