"""A dataset in memory with the interface of wmsched.learn.data.dataset.Dataset: loop nests, split and
annotated."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from wmsched.schedules.types import Measurement, Trajectory, Workload

HEADER = """\
# from tvm.script import tir as T

@I.ir_module
class Module:
    @T.prim_func
    def main(p0: T.Buffer(({n}, {k}), "float32"), {name}: T.Buffer(({n},), "float32")):
"""


def program(name: str, n: int, k: int, outer: int, inner: int, kind: str) -> str:
    """A reduction as TVM prints it, its row loop cut in three."""
    rows = n // outer // inner
    index = f"ax0_outer_outer * {outer * inner} + ax0_outer_inner * {inner} + ax0_inner"
    lines = [
        '        T.func_attr({"tir.noalias": T.bool(True)})',
        f"        for ax0_outer_outer in {kind}({rows}):",
        f"            for ax0_outer_inner, ax0_inner in T.grid({outer}, {inner}):",
        f"                {name}[{index}] = T.float32(0)",
        f"            for ax0_outer_inner, k1, ax0_inner in T.grid({outer}, {k}, {inner}):",
    ]
    lines.append(f"                {name}[{index}] = {name}[{index}] + p0[{index}, k1]")
    return HEADER.format(n=n, k=k, name=name) + "\n".join(lines) + "\n"


class ToyDataset:
    """Six workloads of three networks with ``records`` trajectories of three actions each."""

    root = Path("toy")
    manifest: dict = {}  # noqa: RUF012

    def __init__(self, *, records: int = 6, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._workloads: list[Workload] = []
        self._states: dict[str, dict[str, str]] = {}
        self._trajectories: dict[str, list[Trajectory]] = {}
        for number in range(6):
            n, k = 64 << (number % 3), 16 << (number // 3)
            workload = Workload(key=f'["toy{number}", {n}, {k}]', network=f"net{number // 2}")
            self._workloads.append(workload)
            states: dict[str, str] = {}
            trajectories = []
            for _ in range(records):
                outer, inner = (int(1 << x) for x in rng.integers(0, 3, 2))
                kind = str(rng.choice(["T.parallel", "T.unroll"]))
                chain = [(1, 1, "range"), (1, inner, "range"), (outer, inner, "range"), (outer, inner, kind)]
                texts = [program(f"red{number}", n, k, *facts) for facts in chain]
                hashes = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts]
                states |= dict(zip(hashes, texts))
                actions = (
                    f"split inner extent {n} factor {inner}",
                    f"split outer extent {n // inner} factor {outer}",
                    f"annotate outermost extent {n // inner // outer} {kind}",
                )
                trajectories.append(
                    Trajectory(
                        workload_id=workload.id,
                        steps=[],
                        action_texts=actions,
                        states=tuple(hashes),
                        measurement=Measurement(costs=(1e-3,)),
                    )
                )
            self._states[workload.id] = states
            self._trajectories[workload.id] = trajectories

    def workloads(self) -> list[Workload]:
        return sorted(self._workloads, key=lambda workload: workload.id)

    def trajectories(self, workload_id: str) -> list[Trajectory]:
        return self._trajectories[workload_id]

    def states(self, workload_id: str) -> dict[str, str]:
        return self._states[workload_id]

    def fingerprint(self) -> dict[str, object]:
        return {"workloads": [workload.id for workload in self.workloads()], "records": 36, "sources": []}
