"""A small dataset, the lines of a log, and a console that only listens."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_builder.base.store import TableWriter
from data_builder.build.manifest import checksums
from wmsched.learn.data.dataset import (
    STATES,
    TRAJECTORIES_OF,
    WORKLOADS_OF,
    group_id,
    state_hash,
    states_path,
    trajectories_path,
)
from wmsched.schedules.steps import decode_steps
from wmsched.schedules.types import Iter, Measurement, Stage, Workload

KEY = '["0123456789abcdef0123456789abcdef", [8, 8]]'
TEXTS = ["s0", "s1", "s2: \N{GREEK SMALL LETTER MU}"]
HASHES = [state_hash(text) for text in TEXTS]
STEPS = [["SP", 0, 0, 8, [4], 1], ["AN", 0, 0, 3]]


def quiet():
    class Quiet:
        def __init__(self) -> None:
            self.problems: list[str] = []
            self.notes: list[str] = []

        def problem(self, text: str) -> None:
            self.problems.append(text)

        def note(self, text: str) -> None:
            self.notes.append(text)

        def start(self, what: str, total: int, done: int) -> None:
            pass

        def step(self) -> None:
            pass

    return Quiet()


def write_dataset(root: Path, *, version: int = 4) -> str:
    """One workload, two records: one replayed, one failed. Returns its id."""
    stages = (
        Stage("A", "placeholder", shape=(8, 8)),
        Stage("B", "compute", (Iter("i", 8, "S"),), ops=(("Add", 1),)),
    )
    workload = Workload(KEY, "llvm", (2, 64), stages, 64.0, "net", "add", 3)
    name = group_id(KEY, "llvm", (2, 64)) if version > 1 else workload.id
    with TableWriter(states_path(root, name), STATES) as table:
        for mark, text in zip(HASHES, TEXTS, strict=True):
            table.add({"hash": mark, "text": text})
    ok = Measurement((1e-3, 3e-3), 0, 0.5, 7.0)
    words = [action.text for action in decode_steps(STEPS, stages)]
    failed = Measurement((1e10,), 2, 0.1, 8.0)
    with TableWriter(trajectories_path(root, name), TRAJECTORIES_OF[version]) as table:
        for line, (measurement, states) in enumerate([(ok, HASHES), (failed, [])], start=1):
            table.add(
                {
                    "source": "log.json", "line": line, "steps": json.dumps(STEPS),
                    "action_texts": words,
                    "states": states, "costs": list(measurement.costs), "seconds": measurement.seconds,
                    "error_no": measurement.error_no, "all_cost": measurement.all_cost,
                    "timestamp": measurement.timestamp, **({"disturbed": None} if version > 1 else {}),
                    **({"workload_id": name} if version > 2 else {}),
                }
            )  # fmt: skip
    with TableWriter(root / "workloads.parquet", WORKLOADS_OF[version]) as table:
        table.add(
            {
                "workload_id": name, "workload_key": KEY, "target": "llvm", "hardware": [2, 64],
                "network": "net", "desc": "add", "weight": 3, "flop_ct": 64.0,
                "stages": workload.stages_json(),
                "layout_rewrite": 0, "s0": HASHES[0],
                **({"threads": 0, "networks": []} if version > 3 else {}),
            }
        )  # fmt: skip
    source = {"path": "log.json", "sha256": "ab", "lines": 2, "bad": 0, "records": 2, "duplicates": 0}
    kinds = {"ok": 1, "compile_host": 1}
    totals = {"workloads": 1, "records": 2, "lines": 2, "bad": 0, "steps": 4, "states": 3, "replayed": 1}
    manifest = {
        "format_version": version,
        "sources": [{**source, "errors_by_kind": kinds}],
        "totals": {**totals, "errors_by_kind": kinds},
    }
    if version > 1:
        manifest["files"] = checksums(root)
    (root / "manifest.json").write_text(json.dumps(manifest))
    return name


def change_rows(path: Path, change) -> None:
    table = pq.read_table(path, partitioning=None)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)


def record_line(key: str, cost: float, error_no: int = 0, target: str = "llvm", steps=STEPS) -> bytes:
    task = [key, target, [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []]
    row = {"i": [task, [[], steps]], "r": [[cost], error_no, 0.5, 1], "v": "v0.6"}
    return json.dumps(row).encode()
