"""Candidates of MetaSchedule's search to columns through the C++ reader, a whole batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from wmsched.base.cores import usable_cores
from wmsched.features.trace_features import TraceBatch, machine_sizes
from wmsched.metaschedule.native.cpu_postproc import CpuProgram
from wmsched.schedules.types import Workload


@dataclass(frozen=True)
class ReadTraces:
    """What was read of N candidates.

    Parameters
    ----------
    stages : int64 [N]
        The heaviest stage's number among the workload's; -1 where only Python's reader knows the candidate,
        and the rest does not hold.
    columns : float64 [N, K]
    hashes : int64 [N, 4]
        128 bits, equal for equal traces, and as many for those of one family (`diversity.signature`).
    rows : int64 [N, W]
        Of schedules that nobody has made: what would be decided in the end (`TraceReader.drawn`); [N, 0] of
        candidates.
    """

    stages: NDArray[np.int64]
    columns: NDArray[np.float64]
    hashes: NDArray[np.int64]
    rows: NDArray[np.int64]
    batch: TraceBatch

    @property
    def fine(self) -> NDArray[np.bool_]:
        """Which candidates were read: bool [N]."""
        return self.stages >= 0

    def keys(self) -> list[bytes]:
        """N times what tells a trace from others."""
        return _told(self.hashes[:, :2])

    def families(self, places: Sequence[int]) -> list[bytes]:
        """What traces of one family have in common, of some of the fine ones."""
        return _told(self.hashes[places, 2:])

    def phi(self, places: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """phi and the trace columns of some of the fine ones, as `trace_features` gives them."""
        return self.batch(self.stages[places], self.columns[places])


def _told(hashes: NDArray[np.int64]) -> list[bytes]:
    """Each row's sixteen bytes."""
    return list(np.ascontiguousarray(hashes).view("V16").ravel().tolist())


class TraceReader:
    """Reads candidates of one workload.

    Parameters
    ----------
    library : module
        `native_library.library`'s.
    workload : Workload
        With its stages.
    threads : int
        As for `features.features`.

    Raises
    ------
    ValueError
        The workload has no stages, or the library computes columns that are not known here.
    """

    def __init__(self, library: Any, workload: Workload, *, threads: int = 1) -> None:
        self.names = [str(name) for name in library["column_names"]()]
        self._batch = TraceBatch(workload, self.names)
        stages = orjson.loads(workload.stages_json())
        cores, warp, shared = map(float, machine_sizes(workload))
        how = stages, cores, warp, shared, float(threads), usable_cores()
        self._read, self._read_drawn = library["reader"](*how), library["drawn_reader"](*how)

    def __call__(self, candidates: Any) -> ReadTraces:
        """Read a sequence of `MeasureCandidate`."""
        found = self._empty(len(candidates))
        self._read(candidates, found.stages, found.columns, found.hashes)
        return found

    def drawn(
        self,
        traces: Sequence[Any],
        which: Sequence[int],
        rows: Sequence[Sequence[int]],
        cpu: CpuProgram | None = None,
    ) -> ReadTraces:
        """Read N schedules that nobody has made, as MetaSchedule's postprocessors would leave them.

        Parameters
        ----------
        traces : sequence of `tvm.s_tir.schedule.Trace`
            As the space generator makes them: without postprocessors.
        which : sequence of N int
            Which of the traces each schedule's is.
        rows : sequence of N sequences of int
            What is decided in place of the trace's own decisions, one after the other: the lengths of a
            tile, the number of a category's choice, where a stage is computed. TVM computes a stage further
            out where that is no place for it, and the rows that were read say so.
        cpu : CpuProgram, optional
            The postprocessors are those for a CPU; without, those for CUDA.
        """
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        numbers = np.zeros((len(rows), max(1, counts.max(initial=0))), dtype=np.int64)
        for row, given in zip(numbers, rows, strict=True):
            row[: len(given)] = given
        found = self._empty(len(rows), numbers)
        of = np.asarray(which, dtype=np.int64)
        program = None if cpu is None else [cpu.rewritten, cpu.offsets]
        self._read_drawn(
            list(traces), of, counts, numbers, program, found.stages, found.columns, found.hashes
        )
        return found

    def _empty(self, count: int, rows: NDArray[np.int64] | None = None) -> ReadTraces:
        stages, hashes = np.empty(count, dtype=np.int64), np.empty((count, 4), dtype=np.int64)
        rows = np.empty((count, 0), dtype=np.int64) if rows is None else rows
        return ReadTraces(stages, np.empty((count, len(self.names))), hashes, rows, self._batch)
