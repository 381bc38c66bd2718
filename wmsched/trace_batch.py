"""phi of many traces at once, from the numbers that the C++ reader (`backends/native`) has of each.

`trace_features` says what the columns mean and computes them for one trace after the other; here they are put
together from what the reader followed: columns that it has computed, and the loops of the heaviest stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.features import _INDEX, _actions, _stride, operation
from wmsched.hardware import gpu_columns
from wmsched.kernel_columns import _largest_first
from wmsched.phi_columns import main_columns
from wmsched.phi_depths import Depths
from wmsched.trace_features import _PLACE
from wmsched.types import Stage, Workload

Floats = NDArray[np.float32]

#: Of traces with none of what these count, which are the only ones that the reader takes.
_ABSENT = ("trace_reindex", "trace_pipeline", "trace_tensorized", "trace_intrinsics")


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
        self.workload = workload
        self.cores = workload.hardware[0] if workload.hardware and workload.hardware[0] > 0 else 1
        self._phi = np.full(len(_INDEX), np.nan, np.float32)
        self._extra = np.full(len(_PLACE), np.nan, np.float32)
        for name, value in _actions([]).items():
            self._phi[_INDEX[name]] = value
        for name, value in (dict.fromkeys(_ABSENT, 0.0) | gpu_columns(workload.target)).items():
            self._extra[_PLACE[name]] = value
        self._take, self._put = _places(names, _INDEX)
        self._take_extra, self._put_extra = _places(names, _PLACE)

    def __call__(
        self, state: NDArray[Any], columns: NDArray[Any], loops: NDArray[Any], tiles: NDArray[Any]
    ) -> tuple[Floats, Floats]:
        """phi float32 [N, P] and the trace columns float32 [N, E].

        Parameters
        ----------
        state : int64 [N, 4]
            1, the heaviest stage's number among the workload's, how many loops it has, its unroll pragma.
        columns : float64 [N, K]
        loops : int64 [N, D, 4]
            Extent, kind, annotation and last iterator of the stage's loops, innermost first.
        tiles : float64 [N, D, I]
            How far each iterator runs in each loop.
        """
        phi, extra = np.tile(self._phi, (len(state), 1)), np.tile(self._extra, (len(state), 1))
        phi[:, self._put] = columns[:, self._take]
        extra[:, self._put_extra] = columns[:, self._take_extra]
        for number in np.unique(state[:, 1]):
            members = np.flatnonzero(state[:, 1] == number)
            source = self.workload.stages[number]
            for name, value in operation(source, source.reads, self.workload).items():
                phi[members, _INDEX[name]] = value
            depths = _depths(source, state[members], loops[members], tiles[members])
            for name, values in (main_columns(depths) | _vector_reads(depths)).items():
                phi[members, _INDEX[name]] = values
        return phi, extra


def _places(names: Sequence[str], index: dict[str, int]) -> tuple[list[int], list[int]]:
    """Places of the names that are columns of one kind, among the reader's and among these."""
    return [k for k, name in enumerate(names) if name in index], [index[x] for x in names if x in index]


def _depths(source: Stage, state: NDArray[Any], loops: NDArray[Any], tiles: NDArray[Any]) -> Depths:
    counts = state[:, 2]
    depth = int(counts.max())
    return Depths.of_arrays(
        source,
        source.reads,
        loops=loops[:, :depth],
        tiles=tiles[:, :depth, : len(source.iters)],
        counts=counts,
        unroll=state[:, 3].astype(np.float64),
    )


def _vector_reads(depths: Depths) -> dict[str, NDArray[Any]]:
    """How the vector reads the two largest tensors."""
    axis = depths.last[np.arange(len(depths.last)), depths.vector]
    most = len(depths.source.iters)
    axis = np.where((axis >= 0) & (axis < most), axis, most)
    found = {}
    for k, read in enumerate(_largest_first(depths.reads)[:2]):
        strides = np.array([*(_stride(read, it) for it in range(most)), 0.0])
        found[f"main_vector_read{k}"] = np.where(depths.vector >= 0, strides[axis], -1.0)
    return found
