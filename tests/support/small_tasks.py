"""Small tasks as logs have them, and a console that only listens."""

from __future__ import annotations

import tvm
from tvm import auto_scheduler, te

TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=2"


class Quiet:
    def __init__(self) -> None:
        self.problems: list[str] = []

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def note(self, text: str) -> None:
        pass

    def start(self, what: str, total: int, done: int) -> None:
        pass

    def step(self) -> None:
        pass


def make_task(n: int):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    tensors = [a, b, te.compute((n, n), lambda i, j: te.max(c[i, j], 0.0), name="D")]
    key = auto_scheduler.ComputeDAG(tensors).workload_key()
    auto_scheduler.workload_registry.register_workload_tensors(key, tensors)
    hardware = auto_scheduler.HardwareParams(2, 64, 64, 0, 0, 0, 0, 0)
    return auto_scheduler.SearchTask(
        workload_key=key, target=tvm.target.Target(TARGET), hardware_params=hardware, desc=f"matmul {n}"
    )
