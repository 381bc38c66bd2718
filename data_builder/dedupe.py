"""`wmsched-data dedupe`: one record for each schedule of a rank group.

A build already leaves out lines that are the same measurement twice. Here it is the same schedule measured
several times: runs of a search repeat candidates, and merged logs do. Their times are one program's, so
ranking them against each other teaches noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_builder.derive import Derived, Row, stored_records, stored_states
from wmsched.dataset import Dataset, group_id
from wmsched.errors import DatasetError
from wmsched.types import Measurement

KEEP = ("first", "best", "median")


def dedupe(root: Path, out: Path, *, keep: str = "median") -> dict[str, Any]:
    """Write the dataset without repeated schedules.

    Parameters
    ----------
    root, out : Path
        A finished dataset, and the directory of the new one.
    keep : str
        Which measurement of a schedule stays: "first", "best" (the fastest), or "median" (the lower of two).
        Failed ones count only where all failed, then the first stays.

    Returns
    -------
    dict
        The manifest; what was left out is among `duplicates`, and in problems.txt with its place.

    Raises
    ------
    DatasetError
        `root` is no finished dataset, or `out` holds something else.

    Notes
    -----
    Holds 32 bytes a record of one rank group.
    """
    if keep not in KEEP:
        raise DatasetError(f"--keep {keep!r} is none of {', '.join(KEEP)}")
    dataset = Dataset(root)
    with Derived(out, {"command": "dedupe", "inputs": [str(root)], "keep": keep}) as derived:
        for entry in dataset.manifest["sources"]:
            derived.add_source(entry["path"], entry)
        for workload_id in dataset.workload_ids:
            row: Row = dict(dataset.row(workload_id))
            row["workload_id"] = group_id(row["workload_key"], row["target"], row["hardware"])
            chosen = _chosen(dataset, workload_id, keep)
            records = _kept(dataset, workload_id, chosen, derived)
            derived.group(row, records, stored_states(dataset, workload_id))
        return derived.finish()


def _schedule(row: Row) -> bytes:
    return hashlib.blake2b(row["steps"].encode(), digest_size=16).digest()


def _chosen(dataset: Dataset, workload_id: str, keep: str) -> dict[bytes, int]:
    """The position of the record that stays, by schedule."""
    found: dict[bytes, list[tuple[float, int]]] = {}
    for position, row in enumerate(stored_records(dataset, workload_id)):
        measurement = Measurement(tuple(row["costs"]), row["error_no"])
        seconds = measurement.seconds if measurement.ok else float("inf")
        found.setdefault(_schedule(row), []).append((seconds, position))
    picks = {}
    for schedule, times in found.items():
        good = [entry for entry in times if entry[0] < float("inf")]
        if not good:
            picks[schedule] = times[0][1]
        elif keep == "first":
            picks[schedule] = good[0][1]
        else:
            good.sort()
            picks[schedule] = good[0 if keep == "best" else (len(good) - 1) // 2][1]
    return picks


def _kept(dataset: Dataset, workload_id: str, chosen: dict[bytes, int], derived: Derived) -> Iterator[Row]:
    for position, row in enumerate(stored_records(dataset, workload_id)):
        if chosen[_schedule(row)] == position:
            yield row
        else:
            derived.drop(row, "the schedule of another line of this dataset; left out")
