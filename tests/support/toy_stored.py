"""A toy dataset on disk with states and times, as `wmsched-data build` would have written it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from toy_dataset import program

from data_builder.base.store import TableWriter
from data_builder.build.manifest import write_manifest
from data_builder.build.trajectories import workload_row
from wmsched.learn.data.dataset import (
    STATES,
    TRAJECTORIES,
    WORKLOADS,
    group_id,
    state_hash,
    states_path,
    trajectories_path,
)
from wmsched.schedules.steps import decode_steps
from wmsched.schedules.types import Iter, Stage, Workload

TARGET = "llvm -mcpu=znver4 -num-cores=2"
HARDWARE = (2, 64, 64, 0, 0, 0, 0, 0)
KINDS = {1: "T.unroll", 2: "T.vectorized", 3: "T.parallel"}


def write_toy(root: Path, *, workloads: int = 6, records: int = 24, disturbed: int = 0) -> Path:
    """Workloads of three networks, two steps a record; the first `disturbed` of each have wrong times."""
    rng = np.random.default_rng(0)
    steps_in_all = texts_in_all = 0
    with TableWriter(root / "workloads.parquet", WORKLOADS) as table:
        for number in range(workloads):
            n, k = 64 << (number % 3), 16 << (number // 3)
            stages = (
                Stage("p0", "placeholder", shape=(n, k)),
                Stage("red", "compute", (Iter("i", n, "S"), Iter("k", k, "R")), (), (("Add", 1),), (n,)),
            )
            key = json.dumps([f"{number:032x}", [n, k]])
            workload = Workload(key, TARGET, HARDWARE, stages, 2.0 * n * k, f"net{number % 3}", "red", 1)
            name = group_id(key, TARGET, HARDWARE)
            texts: dict[str, str] = {}

            def known(*facts: object, texts: dict = texts, of: tuple = (f"red{number}", n, k)) -> str:
                text = program(*of, *facts)
                texts[state_hash(text)] = text
                return state_hash(text)

            with TableWriter(trajectories_path(root, name), TRAJECTORIES) as rows:
                for line in range(records):
                    outer, inner = (int(1 << x) for x in rng.integers(0, 4, 2))
                    mark = int(rng.integers(1, 4))
                    steps = [["SP", 1, 0, n, [outer, inner], 1], ["AN", 1, 0, mark]]
                    marked = line < disturbed
                    seconds = 1e-6 * n * k / (1 + inner) / mark if not marked else 1e-9 * inner * mark
                    rows.add(
                        {
                            "workload_id": name, "source": "log.json", "line": number * records + line + 1,
                            "steps": json.dumps(steps),
                            "action_texts": [action.text for action in decode_steps(steps, stages)],
                            "states": [
                                known(1, 1, "range"), known(outer, inner, "range"),
                                known(outer, inner, KINDS[mark]),
                            ],
                            "costs": [seconds], "seconds": seconds, "error_no": 0, "all_cost": 0.1,
                            "timestamp": 1.0, "disturbed": marked if disturbed else None,
                        }
                    )  # fmt: skip
            with TableWriter(states_path(root, name), STATES) as held:
                for mark_, text in texts.items():
                    held.add({"hash": mark_, "text": text})
            table.add(workload_row(name, workload, layout_rewrite=0, s0=known(1, 1, "range")))
            steps_in_all += 2 * records
            texts_in_all += len(texts)
    (root / "problems.txt").touch()
    count = workloads * records
    source = {"path": "log.json", "sha256": "ab", "lines": count, "bad": 0, "records": count}
    write_manifest(
        root,
        {
            "sources": [{**source, "duplicates": 0, "excluded": 0, "errors_by_kind": {"ok": count}}],
            "totals": {
                "workloads": workloads, "records": count, "lines": count, "bad": 0, "duplicates": 0,
                "excluded": 0, "steps": steps_in_all, "states": texts_in_all, "replayed": count,
                "replay_failed": 0, "errors_by_kind": {"ok": count},
            },
        },
    )  # fmt: skip
    return root
