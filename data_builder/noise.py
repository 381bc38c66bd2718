"""The noise check: one reference program, measured again and again beside the schedules.

Its time should always be the same. Where it is not, something else ran on the machine, and the records taken
between two checks, one of which was slow, are marked as disturbed. The checks stand in `noise.ndjson` beside
the logs, so that a build can mark the records whenever it comes.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from data_builder.measure import Measurer
from wmsched.resolve import autoscheduler_tvm, is_cpu

FILE = "noise.ndjson"
#: A check this much slower than usual means a disturbance; quiet machines repeat to a few percent.
TOLERANCE = 0.15
#: Checks farther from a record than this, in seconds, say nothing of it.
REACH = 900.0
SIZE = 192  # of the reference, a matrix product: large enough to notice a busy core or a full cache


class Reference:
    """Measures the reference program and writes down what it took.

    Parameters
    ----------
    measurer : Measurer
        Measures as it does the schedules, on the same devices.
    target : str
    out : Path
        Directory of `noise.ndjson`; what is in it stays.
    """

    def __init__(self, measurer: Measurer, target: str, out: Path) -> None:
        self.measurer = measurer
        self.path = out / FILE
        self.task, self.state = reference(target)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _mend(self.path)

    def check(self) -> float:
        """Measure once, on each device; return the slowest's seconds, NaN where one failed."""
        states = [self.state] * self.measurer.devices
        results = [result for _, result in self.measurer.measure(self.task, states)]
        failed = any(int(result.error_no) != 0 for result in results)
        times = [float(np.mean([float(cost) for cost in result.costs])) for result in results]
        seconds = float("nan") if failed else max(times)
        line = {"t": float(results[-1].timestamp), "seconds": None if failed else seconds}
        with open(self.path, "ab") as stream:
            stream.write(orjson.dumps(line) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        return seconds


def reference(target: str) -> tuple[Any, Any]:
    """The reference program as a search task, and the schedule of it that is measured."""
    task = _task(target)
    return task, _schedule(task.compute_dag, task.target)


def _schedule(dag: Any, target: Any) -> Any:
    """None at all on a processor; on a GPU, where nothing is built without threads, a block for each row."""
    if is_cpu(target):
        return dag.init_state
    state = dag.get_init_state()
    product = len(state.stages) - 1
    rows, columns, _ = state.stages[product].iters
    state.bind(product, rows, "blockIdx.x")
    state.bind(product, columns, "threadIdx.x")
    return state


def _task(target: str) -> Any:
    tvm = autoscheduler_tvm()
    from tvm import te

    a, b = te.placeholder((SIZE, SIZE), name="A"), te.placeholder((SIZE, SIZE), name="B")
    k = te.reduce_axis((0, SIZE), name="k")
    tensors = [a, b, te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]
    ansor = tvm.auto_scheduler
    key = ansor.ComputeDAG(tensors).workload_key()
    ansor.workload_registry.register_workload_tensors(key, tensors)
    return ansor.SearchTask(workload_key=key, target=tvm.target.Target(target))


def _mend(path: Path) -> None:
    """Cut off half a line that a kill left."""
    if path.exists():
        data = path.read_bytes()
        if data and not data.endswith(b"\n"):
            with open(path, "r+b") as stream:
                stream.truncate(data.rfind(b"\n") + 1)


class Checks:
    """What the noise check of some logs found.

    Parameters
    ----------
    times, seconds : sequence of float
        When each check was made, ascending, and what it took; NaN for one that failed.
    tolerance : float
        How much slower than usual a check may be.
    """

    def __init__(self, times: list[float], seconds: list[float], *, tolerance: float = TOLERANCE) -> None:
        self.times = times
        known = np.array(seconds, np.float64)
        quiet = known[np.isfinite(known)]
        # Disturbances only ever slow down, so "usual" is near the fast end, but not the luckiest of all.
        self.usual = float(np.quantile(quiet, 0.2)) if quiet.size else float("nan")
        self.slow = [not second <= self.usual * (1 + tolerance) for second in seconds]

    @staticmethod
    def read(path: Path, *, tolerance: float = TOLERANCE) -> Checks:
        """Those of a `noise.ndjson`; lines that are none are passed over."""
        found = sorted(_lines(path), key=lambda check: check[0])
        return Checks([t for t, _ in found], [s for _, s in found], tolerance=tolerance)

    def disturbed(self, timestamp: float) -> bool | None:
        """Whether a record of this time is disturbed: a check next to it was slow. None: none was near.

        TVM cuts a record's time down to the second, so a whole second stands for any moment of it.
        """
        first = bisect.bisect_left(self.times, timestamp)
        last = bisect.bisect_left(self.times, timestamp + (timestamp % 1 == 0))
        near = [
            self.slow[index]
            for index in range(first - 1, last + 1)
            if 0 <= index < len(self.times) and abs(self.times[index] - timestamp) <= REACH
        ]
        return any(near) if near else None


def _lines(path: Path) -> Iterator[tuple[float, float]]:
    with open(path, "rb") as stream:
        for line in stream:
            try:
                check = orjson.loads(line)
                seconds = check["seconds"]
                yield float(check["t"]), float("nan") if seconds is None else float(seconds)
            except (ValueError, TypeError, KeyError):
                continue


def checks_of(log: str) -> Checks | None:
    """The checks made beside a log: in its folder or the one above; None where there were none."""
    folder = Path(log.partition("!")[0]).parent
    for place in (folder, folder.parent):
        path = place / FILE
        if path.is_file():
            return Checks.read(path)
    return None
