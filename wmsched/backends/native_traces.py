"""Candidates of MetaSchedule's search to columns through the C++ reader, a whole batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from wmsched.resolve import usable_cores
from wmsched.trace_batch import TraceBatch
from wmsched.types import Workload

#: Loops of the heaviest stage, and iterators of its operation, at most; Python reads a candidate with more.
LOOPS, ITERATORS = 40, 12


@dataclass(frozen=True)
class ReadTraces:
    """What was read of N candidates.

    Parameters
    ----------
    fine : bool [N]
        Where the rest holds; the others are ones that only Python's reader knows.
    keys : N bytes
        Equal for equal traces; told apart by 128 bits otherwise.
    families : N bytes
        Equal for traces of one family (`diversity.signature`).
    """

    fine: NDArray[np.bool_]
    keys: list[bytes]
    families: list[bytes]
    _batch: TraceBatch
    _arrays: tuple[NDArray[Any], ...]

    def phi(self, places: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """phi and the trace columns of some of the fine ones, as `trace_features` gives them."""
        at = np.asarray(places, dtype=np.int64)
        return self._batch(*(array[at] for array in self._arrays))


class TraceReader:
    """Reads candidates of one workload.

    Parameters
    ----------
    library : module
        `native_library.library`'s.
    workload : Workload
        With its stages.

    Raises
    ------
    ValueError
        The workload has no stages, or the library computes columns that are not known here.
    """

    def __init__(self, library: Any, workload: Workload) -> None:
        names = [str(name) for name in library["column_names"]()]
        self._batch = TraceBatch(workload, names)
        stages = orjson.loads(workload.stages_json())
        self._read = library["reader"](stages, float(self._batch.cores), usable_cores())
        self._width = len(names)

    def __call__(self, candidates: Any) -> ReadTraces:
        """Read a sequence of `MeasureCandidate`."""
        count = len(candidates)
        state = np.zeros((count, 4), dtype=np.int64)
        columns = np.empty((count, self._width))
        loops = np.empty((count, LOOPS, 4), dtype=np.int64)
        tiles = np.empty((count, LOOPS, ITERATORS))
        hashes = np.empty((count, 4), dtype=np.int64)
        self._read(candidates, state, columns, loops, tiles, hashes)
        told = hashes.tobytes()
        return ReadTraces(
            fine=state[:, 0] == 1,
            keys=[told[k : k + 16] for k in range(0, len(told), 32)],
            families=[told[k + 16 : k + 32] for k in range(0, len(told), 32)],
            _batch=self._batch,
            _arrays=(state, columns, loops, tiles),
        )
