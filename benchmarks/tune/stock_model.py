"""The stock XGBModel away from the search: its features, objective and stopping rule, on recorded programs.

What `tvm/auto_scheduler/cost_model/xgb_model.py` does in `update` and `predict`, with the features computed
once, so that several splits of the same records cost one extraction. Needs AutoScheduler's TVM.

TVM 0.16 extracts the features of one program differently from call to call (buffers that tie come in the
order of their addresses), so the stock model's numbers vary by about 0.01 between runs, fixed seeds or not.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.records import Measured

logger = logging.getLogger("benchmarks")

CHUNK = 512  # programs whose features are extracted at once


class StockFeatures:
    """Per-store features of recorded programs, by workload key.

    Parameters
    ----------
    groups : sequence of Measured
        The workloads and their programs.
    rows : dict
        The row of the open workloads file for each workload key.
    """

    def __init__(self, groups: Sequence[Measured], rows: dict[str, dict[str, Any]]) -> None:
        from wmsched.toolchain.resolve import autoscheduler_tvm

        autoscheduler_tvm()
        from tvm.auto_scheduler import feature

        from wmsched.ansor.compute_dag import task_from_row

        self.features: dict[str, list[NDArray[np.float64]]] = {}
        self.throughputs: dict[str, NDArray[np.float64]] = {}
        for number, group in enumerate(groups):
            task = task_from_row(rows[group.key], target=group.target)
            states = [_state(task, steps) for steps in group.steps]
            found: list[NDArray[np.float64]] = []
            for start in range(0, len(states), CHUNK):
                part = feature.get_per_store_features_from_states(states[start : start + CHUNK], task)
                found += [np.asarray(x, dtype=np.float64) for x in part]
            self.features[group.key] = found
            seconds = group.seconds
            best = np.nanmin(seconds)
            # as TVM labels measurements: best over seconds within the task, a failure 0
            self.throughputs[group.key] = np.where(np.isfinite(seconds), best / seconds, 0.0)
            if (number + 1) % 20 == 0:
                logger.info("features of %d of %d workloads", number + 1, len(groups))

    def fit(self, keys: Sequence[str]) -> Any:
        """The stock model trained on these workloads: an XGBoost booster with the pack-sum objective."""
        import xgboost
        from tvm.auto_scheduler.cost_model import xgb_model as stock

        model = stock.XGBModel()  # its module has no xgboost before the first one is made
        features = [x for key in keys for x in self.features[key]]
        packed = np.empty(len(features), dtype=object)
        packed[:] = features
        labels = np.concatenate([self.throughputs[key] for key in keys])
        tasks = np.concatenate([np.full(len(self.features[key]), place) for place, key in enumerate(keys)])
        data = stock.pack_sum_xgbmatrix(packed, labels, tasks, labels)
        return xgboost.train(
            model.xgb_params,
            data,
            num_boost_round=10000,
            obj=stock.pack_sum_square_error,
            callbacks=[
                stock.CustomCallback(
                    stopping_rounds=50,
                    metric="tr-p-rmse",
                    fevals=[stock.pack_sum_rmse, stock.pack_sum_average_peak_score(model.plan_size)],
                    evals=[(data, "tr")],
                    maximize=False,
                    verbose_eval=0,
                )
            ],
        )

    def predict(self, booster: Any, key: str) -> NDArray[np.float64]:
        """Scores of a workload's programs, -inf for those that could not be lowered."""
        from tvm.auto_scheduler.cost_model import xgb_model as stock

        features = self.features[key]
        data, packs = stock.feature_to_pack_sum_xgbmatrix(features)
        scores = stock.predict_throughput_pack_sum(booster.predict(data), packs)
        return np.array([-np.inf if x.min() == x.max() == 0 else s for x, s in zip(features, scores)])


def _state(task: Any, steps: list[list[Any]]) -> Any:
    """The program of some transform steps, as TVM reads it from a log line."""
    from tvm.auto_scheduler.measure_record import load_record_from_string

    line = {"i": [[task.workload_key, str(task.target)], [[], steps]], "r": [[0.0], 0, 0.0, 0], "v": "v0.6"}
    entry, _ = load_record_from_string(json.dumps(line))
    return task.compute_dag.infer_bound_from_state(entry.state)
