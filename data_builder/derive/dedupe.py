"""`wmsched-data dedupe`: one record for each schedule of a rank group.

A build already leaves out lines that are the same measurement twice. Here it is the same schedule measured
several times: runs of a search repeat candidates, and merged logs do. Their times are one program's, so
ranking them against each other teaches noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_builder.derive.writer import Derived, Row, schedule, stored_records, stored_states
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import Dataset, group_id
from wmsched.schedules.types import Measurement

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
    A record that stays gets the states of any of its schedule. Holds some bytes a record of one rank group.
    """
    if keep not in KEEP:
        raise DatasetError(f"--keep {keep!r} is none of {', '.join(KEEP)}")
    dataset = Dataset(root)
    with Derived(out, {"command": "dedupe", "inputs": [str(root)], "keep": keep}) as derived:
        for entry in dataset.manifest["sources"]:
            derived.add_source(entry["path"], entry)
        for workload_id in dataset.workload_ids:
            row: Row = dict(dataset.row(workload_id))
            row["workload_id"] = group_id(row["workload_key"], row["target"], row["hardware"], row["threads"])
            chosen, lenders = _chosen(dataset, workload_id, keep)
            states = _lent(dataset, workload_id, lenders)
            records = _kept(dataset, workload_id, chosen, states, derived)
            derived.group(row, records, stored_states(dataset, workload_id))
        return derived.finish()


def _chosen(dataset: Dataset, workload_id: str, keep: str) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """The position of the record that stays, by schedule; of one with states, where the former has none."""
    s0 = dataset.row(workload_id)["s0"]
    found: dict[bytes, list[tuple[float, int]]] = {}
    replayed: dict[bytes, int] = {}
    bare: set[int] = set()
    disturbed: set[int] = set()
    for position, row in enumerate(stored_records(dataset, workload_id)):
        measurement = Measurement(tuple(row["costs"]), row["error_no"])
        seconds = measurement.seconds if measurement.ok else float("inf")
        name = schedule(row)
        found.setdefault(name, []).append((seconds, position))
        if row.get("disturbed"):
            disturbed.add(position)
        if not row["states"]:
            bare.add(position)
        elif row["states"][0] == s0:
            replayed.setdefault(name, position)
    picks = {}
    for name, times in found.items():
        good = [entry for entry in times if entry[0] < float("inf")]
        good = [entry for entry in good if entry[1] not in disturbed] or good  # the others are no times
        if not good:
            picks[name] = times[0][1]
        elif keep == "first":
            picks[name] = good[0][1]
        else:
            good.sort()
            picks[name] = good[0 if keep == "best" else (len(good) - 1) // 2][1]
    return picks, {name: place for name, place in replayed.items() if picks[name] in bare}


def _lent(dataset: Dataset, workload_id: str, lenders: dict[bytes, int]) -> dict[bytes, list[str]]:
    """The states of the records at some positions, by schedule."""
    if not lenders:
        return {}
    places = {position: name for name, position in lenders.items()}
    rows = enumerate(stored_records(dataset, workload_id))
    return {places[position]: row["states"] for position, row in rows if position in places}


def _kept(
    dataset: Dataset,
    workload_id: str,
    chosen: dict[bytes, int],
    states: dict[bytes, list[str]],
    derived: Derived,
) -> Iterator[Row]:
    for position, row in enumerate(stored_records(dataset, workload_id)):
        name = schedule(row)
        if chosen[name] == position:
            # states follow from the steps alone, whichever of the measurements was replayed
            yield {**row, "states": states.get(name, row["states"])}
        else:
            derived.drop(row, "the schedule of another line of this dataset; left out")
