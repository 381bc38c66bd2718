"""Rank groups for the networks that compare candidates."""

from __future__ import annotations

import numpy as np

from wmsched.model.groups import RankGroup


def make_groups(count: int, *, seed: int = 0, columns: int = 5) -> list[RankGroup]:
    """Time grows with column 0; column 4 is NaN throughout in every other workload."""
    rng, groups = np.random.default_rng(seed), []
    for number in range(count):
        rows = rng.normal(rng.normal(0, 3), 1, size=(20, columns)).astype(np.float32)
        seconds = 10.0 ** rng.integers(-6, 0) * np.exp(rows[:, 0].astype(float))
        if number % 2:
            rows[:, 4] = np.nan
        seconds[3] = np.nan
        groups.append(RankGroup(f"w{number}", rows, seconds, f"net{number // 2}"))
    return groups
