"""Lines, figures and table of searches beside busy programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.plan import Results
from benchmarks.runtimes import disturbed


def pair(model: str, seed: int, ratio: float) -> dict:
    return {"kind": disturbed.PAIR, "model": model, "seed": seed, "programs": 1, "ratio": ratio}


def test_a_disturbed_search_is_compared_by_model(tmp_path: Path) -> None:
    lines = [pair("a", 1, 9.0), pair("a", 1, 1.0), pair("a", 2, 1.21), pair("b", 1, 0.9)]
    found = disturbed.figures(lines)
    assert found["disturbed.worst"] == pytest.approx(1.1)
    assert found["disturbed.geomean"] == pytest.approx((1.1 * 0.9) ** 0.5)
    assert disturbed.figures([]) == {}
    assert "| a | 2 | 1.100 | 1.000 | 1.210 |" in disturbed.table(lines).markdown()
    results = Results(tmp_path / "lines.jsonl")
    results.append({**pair("a", 1, 1.0), "alone": 1.0, "busy": 1.0})
    assert disturbed.ratios(Results(tmp_path / "lines.jsonl").lines) == {"a": [1.0]}


def test_a_task_above_its_share_is_counted() -> None:
    report = {"tasks": [{"trials": n, "in_model": s} for n, s in ((20, 1.0), (10, 2.0), (5, None), (5, 1.0))]}
    line = {"kind": disturbed.SEARCH, **disturbed.shares(report)}
    assert line["trial_shares"] == [0.5, 0.25, 0.125, 0.125] and line["time_shares"] == [0.25, 0.5, 0.0, 0.25]
    assert disturbed.over_share([line]) == 1
    report["tasks"][0]["in_model"] = 9.0
    assert disturbed.over_share([{"kind": disturbed.SEARCH, **disturbed.shares(report)}]) == 0
