"""The noise check: one reference program, measured again and again beside the schedules.

Its time should always be the same. Where it is not, something else ran on the machine, and the records taken
between two checks, one of which was slow, are marked as disturbed. The checks stand in `noise.ndjson` beside
the logs, so that a build can mark the records whenever it comes. What stands before a break there and what
comes after it say nothing of each other.
"""

from __future__ import annotations

import bisect
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from data_builder.build.store import write_bytes
from data_builder.collect.measure import Measurer
from data_builder.read.log_reader import STDIN
from wmsched.schedules.database import cut
from wmsched.toolchain.resolve import autoscheduler_tvm, is_cpu

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
        cut(self.path)

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


class Checks:
    """What the noise check of some logs found.

    Parameters
    ----------
    times, seconds : sequence of float
        When each check was made, ascending, and what it took; NaN for one that failed.
    breaks : sequence of float
        Times across which no check says anything of a record.
    tolerance : float
        How much slower than usual a check may be.
    """

    def __init__(
        self,
        times: Sequence[float],
        seconds: Sequence[float],
        *,
        breaks: Sequence[float] = (),
        tolerance: float = TOLERANCE,
    ) -> None:
        known = np.array(seconds, np.float64)
        quiet = known[np.isfinite(known)]
        # Disturbances only ever slow down, so "usual" is near the fast end, but not the luckiest of all.
        self.usual = float(np.quantile(quiet, 0.2)) if quiet.size else float("nan")
        # A break is a neighbour too, one that tells nothing.
        told: list[tuple[float, bool | None]] = [
            *((t, not second <= self.usual * (1 + tolerance)) for t, second in zip(times, seconds)),
            *((t, None) for t in breaks),
        ]
        told.sort(key=lambda one: one[0])
        self.times = [t for t, _ in told]
        self.slow = [slow for _, slow in told]

    @staticmethod
    def read(path: Path, *, tolerance: float = TOLERANCE) -> Checks:
        """Those of a `noise.ndjson`; lines that are none are passed over."""
        found = sorted(_lines(path), key=lambda check: check[0])
        checks = [(t, seconds) for t, seconds in found if seconds is not None]
        return Checks(
            [t for t, _ in checks],
            [seconds for _, seconds in checks],
            breaks=[t for t, seconds in found if seconds is None],
            tolerance=tolerance,
        )

    def disturbed(self, timestamp: float) -> bool | None:
        """Whether a record of this time is disturbed: a check next to it was slow. None: none was near.

        TVM cuts a record's time down to the second, so a whole second stands for any moment of it.
        """
        first = bisect.bisect_left(self.times, timestamp)
        last = bisect.bisect_left(self.times, timestamp + (timestamp % 1 == 0))
        near = [
            slow
            for index in range(first - 1, last + 1)
            if 0 <= index < len(self.times)
            and abs(self.times[index] - timestamp) <= REACH
            and (slow := self.slow[index]) is not None
        ]
        return any(near) if near else None


def _lines(path: Path) -> Iterator[tuple[float, float | None]]:
    """When each check was made and what it took, NaN for one that failed; None for a break."""
    with open(path, "rb") as stream:
        for line in stream:
            try:
                check = orjson.loads(line)
                t = float(check["t"])
                if check.get("break") is True:
                    yield t, None
                    continue
                seconds = check["seconds"]
                yield t, float("nan") if seconds is None else float(seconds)
            except (ValueError, TypeError, KeyError):
                continue


def carry(path: Path, out: Path, *, now: float) -> None:
    """Copy the checks of some logs to a folder in which some of their records are timed anew from `now` on.

    What a folder holds already stays. The new records are of another time, perhaps of another machine, and a
    break keeps the old checks from them.
    """
    place = out / FILE
    held = [line for file in (place, path) if file.is_file() for line in file.read_bytes().splitlines()]
    # TVM cuts a record's time down to the second: it is to come after the break all the same.
    parted = orjson.dumps({"t": math.floor(now) - 0.5, "break": True})
    write_bytes(place, b"".join(line + b"\n" for line in dict.fromkeys([*held, parted])))


def beside(log: str, *, base: Path | None = None) -> Path | None:
    """The file of the checks made beside a log: in its folder or the one above; None where there is none.

    Parameters
    ----------
    log : str
        As a dataset names it: a path, or `archive!member`.
    base : Path, optional
        Where a path that is not whole begins; by default here.
    """
    if log.partition("!")[0] == STDIN:
        return None
    folder = _file_of(os.path.abspath(os.path.join(base or "", log))).parent
    return next((place / FILE for place in (folder, folder.parent) if (place / FILE).is_file()), None)


def _file_of(log: str) -> Path:
    """The file that a log is, or is a member of: the longest part before a "!" that is one."""
    parts = log.split("!")
    names = ("!".join(parts[:count]) for count in range(len(parts), 0, -1))
    return Path(next((name for name in names if os.path.isfile(name)), log))


def checks_of(log: str, *, base: Path | None = None) -> Checks | None:
    """The checks made `beside` a log; None where there were none."""
    path = beside(log, base=base)
    return None if path is None else Checks.read(path)
