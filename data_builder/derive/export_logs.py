"""`wmsched-data export-logs`: the records of a dataset as tuning logs again.

What a build left out (programs compiled wrong, bad lines, excluded workloads), or `dedupe` and `split`, is
left out of the logs as well, so that TVM's own tools and the models of others learn from the same records.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_builder.base.store import locked, remove_partials, write_bytes
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.dataset import undisturbed as undisturbed_of
from wmsched.schedules.steps import dump_record
from wmsched.schedules.traces import is_trace_key
from wmsched.schedules.types import Record, Trajectory

SUFFIX = ".json.gz"


def export_logs(root: Path, out: Path, *, undisturbed: bool = False) -> dict[str, int]:
    """Write one log for each rank group of a dataset of AutoScheduler's records.

    Parameters
    ----------
    root, out : Path
        A finished dataset, and the directory of the logs, `<workload_id>.json.gz`; after a kill, run the same
        again.
    undisturbed : bool
        Leave out records of moments at which the reference program ran slow too.

    Returns
    -------
    dict
        `logs`, `records` and `disturbed` (left out).

    Raises
    ------
    DatasetError
        `root` is no finished dataset, or one of MetaSchedule's traces, or `out` holds something else.
    """
    dataset = Dataset(root)
    traces = [name for name in dataset.workload_ids if is_trace_key(dataset.row(name)["workload_key"])]
    if traces:
        raise DatasetError(
            f"{root}: workload {traces[0]} has traces of MetaSchedule, and those have no such log; "
            "use their database"
        )
    ours = {f"{workload_id}{SUFFIX}" for workload_id in dataset.workload_ids}
    totals = {"logs": 0, "records": 0, "disturbed": 0}
    with locked(out):
        remove_partials(out)
        strange = sorted(entry.name for entry in out.iterdir() if entry.name not in ours | {".lock"})
        if strange:
            raise DatasetError(f"{out} holds {strange[0]}, which is no log of {root}; choose another --out")
        for workload_id in dataset.workload_ids:
            if undisturbed:
                kept, left = undisturbed_of(dataset, workload_id)
            else:
                kept, left = dataset.trajectories(workload_id), 0
            lines = b"".join(_lines(dataset.row(workload_id), kept))
            write_bytes(out / f"{workload_id}{SUFFIX}", gzip.compress(lines, mtime=0))
            totals["logs"] += 1
            totals["records"] += len(kept)
            totals["disturbed"] += left
    return totals


def _lines(workload: Mapping[str, Any], trajectories: Sequence[Trajectory]) -> Iterator[bytes]:
    for trajectory in trajectories:
        record = Record(
            workload_key=workload["workload_key"],
            target=workload["target"],
            hardware=tuple(workload["hardware"]),
            layout_rewrite=workload["layout_rewrite"],
            steps=trajectory.steps,
            measurement=trajectory.measurement,
        )
        yield dump_record(record).encode() + b"\n"
