"""World model's ranker outside a search, fitted to the same records as the other methods.

Needs AutoScheduler's TVM for a recorded program's loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.records import Measured
from wmsched.features.hardware import hardware_features
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.rows import RowBuilder


class ActionRanker:
    """G on the features of the actions and the hardware, as in the bundle `x86-avx512`; rows are made once.

    Parameters
    ----------
    groups : sequence of Measured
        The workloads and their programs.
    described : dict
        The row of the open workloads file for each workload key.
    """

    def __init__(self, groups: Sequence[Measured], described: dict[str, dict[str, Any]]) -> None:
        from wmsched.ansor.compute_dag import task_from_row, workload_from_task

        builder = RowBuilder(state="none")
        self.groups: dict[str, RankGroup] = {}
        for group in groups:
            workload = workload_from_task(task_from_row(described[group.key], target=group.target))
            rows = builder.rows(workload, builder.initial(""), hardware_features(workload), group.steps)
            self.groups[group.key] = RankGroup(group.key, rows, group.seconds)

    def score(self, train: list[Measured], test: list[Measured]) -> dict[str, NDArray[np.float64]]:
        """Scores of the test programs by a ranker fitted to the training programs."""
        ranker = Ranker.fit([self.groups[group.key] for group in train], RankerConfig())
        return {group.key: ranker.margins(self.groups[group.key].rows).astype(np.float64) for group in test}
