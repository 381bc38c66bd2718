"""phi of many traces at once, from the columns that the C++ reader (`backends/native`) has computed of each.

`trace_features` says what the columns mean and computes them for one trace after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.features import _INDEX, _actions, operation
from wmsched.hardware import gpu_columns
from wmsched.schedules.types import Workload
from wmsched.trace_features import _PLACE

Floats = NDArray[np.float32]

#: Of traces with none of what these count, which are the only ones that the reader takes.
_ABSENT = ("trace_reindex", "trace_tensorized", "trace_intrinsics")


class TraceBatch:
    """Puts phi together for candidates of one workload.

    Parameters
    ----------
    workload : Workload
        With its stages.
    names : sequence of K str
        The columns that the reader computes.

    Raises
    ------
    ValueError
        The workload has no stages, or a name is no column's.
    """

    def __init__(self, workload: Workload, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in _INDEX and name not in _PLACE]
        if unknown or not workload.stages:
            raise ValueError(f"no stages, or columns that are not phi's: {unknown[:5]}")
        # What every schedule of an operation has alike: a row for each stage.
        self._phi = np.full((len(workload.stages), len(_INDEX)), np.nan, np.float32)
        self._extra = np.full(len(_PLACE), np.nan, np.float32)
        for row, stage in zip(self._phi, workload.stages):
            for name, value in (_actions([]) | operation(stage, stage.reads, workload)).items():
                row[_INDEX[name]] = value
        for name, value in (dict.fromkeys(_ABSENT, 0.0) | gpu_columns(workload.target)).items():
            self._extra[_PLACE[name]] = value
        self._take, self._put = _places(names, _INDEX)
        self._take_extra, self._put_extra = _places(names, _PLACE)

    def __call__(self, stages: NDArray[Any], columns: NDArray[Any]) -> tuple[Floats, Floats]:
        """phi float32 [N, P] and the trace columns float32 [N, E].

        Parameters
        ----------
        stages : int64 [N]
            The heaviest stage's number among the workload's.
        columns : float64 [N, K]
        """
        phi, extra = self._phi[stages], np.tile(self._extra, (len(stages), 1))
        phi[:, self._put] = columns[:, self._take]
        extra[:, self._put_extra] = columns[:, self._take_extra]
        return phi, extra


def _places(names: Sequence[str], index: dict[str, int]) -> tuple[list[int], list[int]]:
    """Places of the names that are columns of one kind, among the reader's and among these."""
    return [k for k, name in enumerate(names) if name in index], [index[x] for x in names if x in index]
