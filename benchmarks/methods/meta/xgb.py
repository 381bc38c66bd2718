"""Stock MetaSchedule: its XGBModel, trained on this run's measurements only."""

from __future__ import annotations

from typing import Any

from benchmarks.methods import Settings

NAME = "meta-xgb"


def cost_model(settings: Settings) -> Any:
    """The model that `tune_tir` makes for "xgb": random until it has a hundred measurements."""
    from tvm.s_tir.meta_schedule.cost_model import CostModel

    from wmsched.base.cores import usable_cores

    return CostModel.create("xgb", num_tuning_cores=usable_cores(), tree_method="auto")
