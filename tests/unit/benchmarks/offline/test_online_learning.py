"""Telling a task's own measurements: what is compared, and that a wrong ranker is corrected."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.offline.online_learning import LEAST_LEFT, METHODS, replay, table
from wmsched.model.groups import RankGroup


class Sure:
    """A ranker that goes by one column, up or down."""

    def __init__(self, sign: float) -> None:
        self.sign = sign

    def margins(self, rows):
        return (self.sign * rows[:, 0]).astype(np.float32)


def group(count: int) -> RankGroup:
    rows = np.random.default_rng(5).normal(size=(count, 4)).astype(np.float32)
    return RankGroup("task", rows, np.exp(-rows[:, 0] - 0.5 * rows[:, 1]).astype(np.float64))


@pytest.mark.parametrize(("sign", "least"), [(-1.0, 0.35), (1.0, -0.02)], ids=["wrong", "right"])
def test_online_mends_a_wrong_ranker_and_leaves_a_right_one(sign, least) -> None:
    found = replay(Sure(sign), group(180))
    assert {told for told, _ in found} == {16, 32, 64, 128}
    frozen, online = (found[128, method][0] for method in METHODS[:2])
    assert online - frozen > least
    assert 0.5 < found[128, "from scratch"][0] <= 1.0


def test_failed_and_few_records() -> None:
    short = group(16 + LEAST_LEFT - 1)
    assert replay(Sure(1.0), short) == {}
    failed = group(60)
    failed.seconds[:30] = np.nan
    assert {told for told, _ in replay(Sure(1.0), failed)} == {16}


def test_the_table_has_a_line_for_each_number_told() -> None:
    text = table([replay(Sure(1.0), group(50), seed=seed) for seed in range(3)])
    lines = text.splitlines()
    assert len(lines) == 4 and lines[2].startswith("| 16 | 3 |") and lines[3].startswith("| 32 | 3 |")
    assert all(line.count("|") == lines[0].count("|") for line in lines)
