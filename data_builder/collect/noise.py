"""The noise check: one reference program, measured again and again beside the schedules.

Its time should always be the same. Where it is not, something else ran on the machine, and the records taken
between two checks, one of which was slow, are marked as disturbed. The checks stand in `noise.ndjson` beside
the logs, so that a build can mark the records whenever it comes. What stands before a break there and what
comes after it say nothing of each other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from data_builder.collect.measure import Measurer
from data_builder.read.noise_checks import FILE
from wmsched.schedules.database import cut
from wmsched.toolchain.resolve import autoscheduler_tvm, is_cpu

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
