"""Pools of candidates that a lent GPU timed: how they are written, and how a ranking of one is told."""

from __future__ import annotations

import json

import numpy as np

from benchmarks.plan import read
from benchmarks.tune.meta import deferred, pool_ranking


def test_pairs_in_order_and_the_best_of_the_first() -> None:
    times = np.array([4.0, 1.0, 2.0, 2.01])
    pairs, firsts = pool_ranking.told(np.array([0.0, 2.0, 3.0, 1.0]), times)
    # 2.0 before 1.0 is the one pair of five that is out of order; 2.0 and 2.01 are alike
    assert pairs == 4 / 5 and firsts == [0.5, 1.0, 1.0]


def test_a_pool_has_each_timed_program_once(tmp_path) -> None:
    (tmp_path / "seconds.jsonl").write_text(
        '{"key": "a", "seconds": [3.0, 1.0, 2.0]}\n{"key": "b", "error": "a fault"}\n'
        '{"key": "c", "seconds": [4.0]}\n'
    )
    common = {"kind": "run", "task": "t", "type": "mean", "target": "{}", "status": "ok"}
    common |= {"budget": 2, "round_size": 2, "seed": 0}
    runs = [
        common | {"method": method, "proposed": [{"key": key, "record": [[key], []]} for key in keys]}
        for method, keys in (("meta-xgb", ("a", "b", "")), ("meta-wmsched", ("c", "a")))
    ]
    runs.insert(0, common | {"method": "meta-xgb", "status": "timeout", "error": "not finished"})
    (tmp_path / "proposed.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    out = tmp_path / "pool.jsonl.gz"
    given = ["--proposed", str(tmp_path / "proposed.jsonl"), "--parcel", str(tmp_path)]
    assert pool_ranking.main([str(out), *given]) == 0
    (line,) = read(out)
    assert line["seconds"] == [2.0, 4.0] and [record[0] for record in line["records"]] == [["a"], ["c"]]


def test_a_run_that_proposed_nothing_is_passed_on(tmp_path) -> None:
    line = {"kind": "run", "task": "t", "status": "timeout", "error": "not finished"}
    assert list(deferred.finished([line], tmp_path)) == [line]
