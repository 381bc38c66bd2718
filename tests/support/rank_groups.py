"""Rank groups whose order is known, and a small ranker's configuration."""

from __future__ import annotations

import numpy as np

from wmsched.model.groups import RankGroup
from wmsched.model.ranker import RankerConfig

SMALL = RankerConfig(rounds=60, depth=3, patience=10, threads=1, learning_rate=0.1)


def make_groups(count: int = 12, *, seed: int = 0) -> list[RankGroup]:
    """Time grows with column 0 and differs by orders of magnitude between the workloads; one in 20 fails."""
    rng = np.random.default_rng(seed)
    groups = []
    for number in range(count):
        rows = rng.normal(size=(40, 5)).astype(np.float32)
        seconds = 10.0 ** rng.integers(-6, 0) * np.exp(rows[:, 0].astype(float))
        seconds[rng.random(40) < 0.05] = np.nan
        groups.append(RankGroup(f"w{number}", rows, seconds, f"net{number // 2}"))
    return groups
