"""`benchmarks.offline.ranking` goes on with its results file: whole methods, of one number of folds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.offline.ranking import finished


def line(method: str, group: str, folds: int = 5) -> str:
    return json.dumps({"kind": "ranking", "method": method, "by": "network", "folds": folds, "group": group})


def test_a_method_that_a_kill_left_half_written_is_made_anew(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    assert finished(out, 5, 2) == set()
    whole, half, twice = [line("a", "1"), line("a", "2")], [line("b", "1")], [line("c", "1")] * 2
    out.write_text("\n".join([*whole, *half, *twice, '{"kind": "rank']))
    assert finished(out, 5, 2) == {("a", "network")}
    assert out.read_text().splitlines() == [*whole, *half, *twice]  # the half line is gone


def test_lines_of_other_folds_are_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    out.write_text(line("a", "1") + "\n")
    with pytest.raises(ValueError, match="lines of 5 folds, not 10: give another --out"):
        finished(out, 10, 1)
