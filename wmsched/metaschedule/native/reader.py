"""Columns of MetaSchedule's candidates from the C++ reader, a batch at a time."""

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
    """Columns and hashes of N candidates.

    Parameters
    ----------
    stages : int64 [N]
        Number of the heaviest stage in the workload; -1 if only Python's reader knows the candidate, whose
        other values are then undefined.
    columns : float64 [N, K]
    hashes : int64 [N, 4]
        128 bits, equal for equal traces, and 128 bits, equal within a family (`diversity.signature`).
    rows : int64 [N, W]
        Decisions after TVM's corrections (`TraceReader.drawn`); [N, 0] for candidates.
    """

    stages: NDArray[np.int64]
    columns: NDArray[np.float64]
    hashes: NDArray[np.int64]
    rows: NDArray[np.int64]
    batch: TraceBatch

    @property
    def fine(self) -> NDArray[np.bool_]:
        """Whether each candidate was read: bool [N]."""
        return self.stages >= 0

    def keys(self) -> list[bytes]:
        """Return N keys, equal for equal traces."""
        return _as_bytes(self.hashes[:, :2])

    def families(self, places: Sequence[int]) -> list[bytes]:
        """Return the family keys of some candidates that were read."""
        return _as_bytes(self.hashes[places, 2:])

    def phi(self, places: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return phi and the trace columns of some candidates that were read, as `trace_features` does."""
        return self.batch(self.stages[places], self.columns[places])


def _as_bytes(hashes: NDArray[np.int64]) -> list[bytes]:
    """Return each row's 16 bytes."""
    return list(np.ascontiguousarray(hashes).view("V16").ravel().tolist())


class TraceReader:
    """Reader of one workload's candidates.

    >>> read = TraceReader(library(), workload)(candidates)
    >>> phi, trace_columns = read.phi(np.flatnonzero(read.fine))

    Parameters
    ----------
    library : module
        As `native.library.library` returns it.
    workload : Workload
        A workload with stages.
    threads : int
        Threads that the programs run on.

    Raises
    ------
    ValueError
        The workload has no stages, or the library has unknown columns.
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
        """Read N schedules from their decisions, as MetaSchedule's postprocessors would leave them.

        Parameters
        ----------
        traces : sequence of `tvm.s_tir.schedule.Trace`
            Traces of the design spaces, without postprocessors.
        which : sequence of N int
            Index of each schedule's trace.
        rows : sequence of N sequences of int
            Decisions that replace the trace's own, one after the other: lengths of a tile, index of a
            category, compute location. TVM moves an impossible compute location outwards; the returned rows
            hold the corrected ones.
        cpu : CpuProgram, optional
            Facts for the CPU's postprocessors; by default CUDA's are simulated.
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
