"""`wmsched-data stats`: what is in a dataset, one row a workload. Holds one workload at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from wmsched.learn.data.dataset import Dataset, states_path, trajectories_path
from wmsched.schedules.types import Measurement

DECILES = np.linspace(0, 1, 11)


@dataclass(frozen=True, slots=True)
class WorkloadStats:
    """Counts of one workload.

    Attributes
    ----------
    errors : dict
        Records whose measurement failed, by kind.
    best, median, worst : float
        Seconds over the measured records; NaN when there is none.
    repeated : int
        Records whose schedule is that of an earlier one.
    step_counts : dict
        How many records have how many steps.
    relative : tuple of float
        Deciles (0 to 100 %, 11 of them) of seconds over the best; empty when nothing was measured.
    """

    workload_id: str
    network: str
    desc: str
    records: int
    errors: dict[str, int]
    steps_mean: float
    steps_max: int
    best: float
    median: float
    worst: float
    replayed: int
    states: int
    repeated: int
    target: str
    step_counts: dict[int, int]
    relative: tuple[float, ...]


def workload_stats(dataset: Dataset) -> Iterator[WorkloadStats]:
    """Statistics of each workload, sorted by id."""
    for workload_id in dataset.workload_ids:
        row = dataset.row(workload_id)
        columns = ["steps", "action_texts", "states", "costs", "seconds", "error_no"]
        table = pq.read_table(
            trajectories_path(dataset.root, workload_id), columns=columns, partitioning=None
        )
        schedules = {hashlib.blake2b(s.encode(), digest_size=16).digest() for s in table["steps"].to_pylist()}
        lengths = [len(texts) for texts in table["action_texts"].to_pylist()]
        costs, numbers = table["costs"].to_pylist(), table["error_no"].to_pylist()
        kinds = Counter(Measurement(tuple(c), n).kind for c, n in zip(costs, numbers, strict=True))
        kinds.pop("ok", None)
        seconds = table["seconds"].to_numpy()
        seconds = seconds[~np.isnan(seconds)]
        spread = np.quantile(seconds, [0, 0.5, 1]) if seconds.size else np.full(3, np.nan)
        yield WorkloadStats(
            workload_id=workload_id,
            network=row["network"],
            desc=row["desc"],
            records=table.num_rows,
            errors=dict(sorted(kinds.items())),
            steps_mean=float(np.mean(lengths)) if lengths else 0.0,
            steps_max=max(lengths, default=0),
            best=float(spread[0]),
            median=float(spread[1]),
            worst=float(spread[2]),
            replayed=sum(bool(states) for states in table["states"].to_pylist()),
            repeated=table.num_rows - len(schedules),
            target=row["target"],
            step_counts=dict(Counter(lengths)),
            relative=tuple(np.quantile(seconds / spread[0], DECILES).tolist()) if seconds.size else (),
            states=pq.read_metadata(states_path(dataset.root, workload_id)).num_rows,
        )
