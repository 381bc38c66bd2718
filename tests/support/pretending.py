"""Collecting with a device that pretends to measure."""

from __future__ import annotations

import json
from pathlib import Path

import tvm
from small_tasks import Quiet, make_task

from data_builder.collect.collect import log_name
from data_builder.collect.measure import MeasureOptions
from wmsched.schedules.steps import parse_record

QUICK = MeasureOptions(min_repeat_ms=1)


def make_row(n: int, **changes):
    task = make_task(n)
    row = {
        "id": n, "network": "a net", "desc": f"matmul {n}", "log": None, "layout_rewrite": None,
        "workload_key": str(task.workload_key), "flop_ct": 1.0, "weight": 1, "target": "llvm",
        "tensors": json.loads(tvm.ir.save_json(task.compute_dag.tensors)),
    }  # fmt: skip
    return {**row, **changes}


def records(out: Path, row) -> list:
    return [
        parse_record(line) for line in (out / "measure_records" / log_name(row)).read_bytes().splitlines()
    ]


class Watch(Quiet):
    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.steps = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, kind: str = "ok") -> None:
        self.steps += 1


class Pretending:
    """A measurer that measures nothing."""

    def __init__(self, options: MeasureOptions) -> None:
        pass

    def measure(self, task, states):
        from tvm import auto_scheduler

        for state in states:
            result = auto_scheduler.measure.MeasureResult([1e-3], 0, "", 0.1, 1.0)
            yield auto_scheduler.MeasureInput(task, state), result


class Refusing(Pretending):
    """Can measure the reference program and nothing else."""

    def measure(self, task, states):
        from tvm import auto_scheduler

        for entry, result in super().measure(task, states):
            if str(task.desc).startswith("matmul"):  # as make_row calls its tasks
                result = auto_scheduler.measure.MeasureResult([1e10], 2, "ld: not found", 0.1, 1.0)
            yield entry, result
