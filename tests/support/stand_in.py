"""A world model of a few lines, for tests of everything around the world model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def vector_length(steps) -> float:
    """What the stand-in likes: long innermost lengths. Any fixed function of the steps would do."""
    return float(sum(step[4][-1] for step in steps if step[0] == "SP"))


class StandInScorer:
    """Scores by `prefer`; remembers what it was asked and what it observed."""

    def __init__(self, prefer) -> None:
        self.prefer = prefer
        self.batches: list[int] = []
        self.observed: list[tuple[list, float]] = []

    def score(self, batch):
        self.batches.append(len(batch))
        learnt = 1000.0 * len(self.observed)
        return np.array([self.prefer(steps) + learnt for steps in batch], dtype=np.float32)

    def observe(self, batch, seconds) -> None:
        self.observed.extend(zip(batch, np.asarray(seconds, dtype=float)))


class StandIn:
    """Has the methods of a WorldModel that a backend calls."""

    def __init__(self, prefer=vector_length, *, fails: str = "") -> None:
        self.prefer = prefer
        self.fails = fails
        self.scorers: dict[str, StandInScorer] = {}

    def task(self, workload, s0_text: str) -> StandInScorer:
        if self.fails:
            raise RuntimeError(self.fails)
        assert s0_text and workload.stages  # a backend has the DAG: the model must get it
        return self.scorers.setdefault(workload.key, StandInScorer(self.prefer))

    def save_pretrained(self, folder) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "config.json").write_text(json.dumps({"stand-in": True}))

    @property
    def scorer(self) -> StandInScorer:
        """The only task's scorer."""
        (scorer,) = self.scorers.values()
        return scorer
