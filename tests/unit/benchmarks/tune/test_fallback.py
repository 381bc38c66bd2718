"""What stands in for a best schedule that computes something else."""

from __future__ import annotations

import json
from pathlib import Path

from dataset_files import record_line

from benchmarks.bench import _settled
from benchmarks.outcomes.outcomes import WRONG
from benchmarks.tune import fallback


def test_the_next_best_of_the_log_that_was_not_tried(tmp_path: Path) -> None:
    lines = [record_line("k1", cost, number) for cost, number in ((3e-3, 0), (1e10, 4), (1e-3, 0), (2e-3, 0))]
    log = tmp_path / "log.json"
    log.write_bytes(b"\n".join([*lines, b"{half"]))
    best, second, third = fallback.ranked(log)
    assert [lines.index(one.encode()) for one in (best, second, third)] == [2, 3, 0]
    assert fallback.after(log, [best]) == second and fallback.after(log, [best, second]) == third
    assert fallback.after(log, [best, second, third]) is None
    assert fallback.after(tmp_path / "gone.json", [best]) is None


def test_a_line_of_metaschedules_database_is_one_too(tmp_path: Path) -> None:
    def trace(name: str) -> list:
        return [[["GetSBlock", [], [name, "main"], ["b0"]]], []]

    target = {"kind": "llvm"}
    rows = [[0, [trace(name), [cost], target, []]] for name, cost in (("a", 3e-3), ("b", 1e-3), ("c", 1e10))]
    log = tmp_path / "log.json"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [json.loads(record)[0] for record in fallback.ranked(log)] == [trace("b"), trace("a")]
    best = json.dumps([trace("b"), [1e-3], target | {"tag": ""}, []])  # as the result line has it
    other = fallback.after(log, [best])
    assert other is not None and json.loads(other) == rows[0][1]
    assert fallback.after(log, [best, other]) is None


def test_a_wrong_one_is_not_settled_until_another_was_measured() -> None:
    assert _settled({"record": "a", "median": 1.0}, "a") and not _settled({"record": "a"}, "b")
    assert _settled({"record": "a", "error": "RuntimeError: cannot be built"}, "a")
    wrong = {"record": "a", "error": f"ValueError: {WRONG}: outputs differ by 3"}
    assert not _settled(wrong, "a")
    assert _settled({"record": "b", "median": 1.0, "instead_of": "a"}, "a")
