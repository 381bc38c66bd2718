"""Recorded measurements that baselines are fitted to: machines stay apart."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
from dataset_files import record_line

from benchmarks import records


def of(target: str, cost: float) -> bytes:
    line = json.loads(record_line("k", cost))
    line["i"][0][1] = target
    return json.dumps(line).encode() + b"\n"


def test_times_of_two_machines_are_two_groups(tmp_path: Path, caplog) -> None:
    for name, target, costs in (
        ("a", "llvm -mcpu=znver4", (2.0, 1.5)),
        ("b", "llvm -mcpu=icelake-server", (9.0,)),
    ):
        (tmp_path / f"{name}.json").write_bytes(b"".join(of(target, cost) for cost in costs))
    first, second = records.apart([tmp_path])
    assert (first.key, second.key) == ("k", "k") and first.target != second.target
    assert first.times == [1.5] and second.times == [9.0]  # of one program the better time
    with caplog.at_level(logging.WARNING):
        (only,) = records.read([tmp_path]).values()
    assert only.times == [1.5] and "1 records for another target" in caplog.text


def test_one_machines_are_one_group(tmp_path: Path, caplog) -> None:
    (tmp_path / "a.json").write_bytes(of("llvm", 2.0) + b"nonsense\n" + of("llvm", 3.0))
    with caplog.at_level(logging.WARNING):
        (group,) = records.read([tmp_path]).values()
    assert np.array_equal(group.seconds, [2.0]) and "another target" not in caplog.text
