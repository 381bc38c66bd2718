"""Datasets made of datasets: the writer that `merge`, `split` and `dedupe` share.

A rank group at a time is read, written and counted, so memory does not grow with the dataset. The manifest
comes last: a directory with one is complete, and one without is begun anew by the same command.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq

from data_builder.base.disk_set import PREFIX
from data_builder.base.store import ROWS_PER_GROUP, TableWriter, locked, remove_partials, write_json
from data_builder.build.manifest import PROBLEMS, libraries, write_manifest
from wmsched.base.errors import DatasetError
from wmsched.base.files import is_partial
from wmsched.learn.data.dataset import (
    MANIFEST,
    STATES,
    TRAJECTORIES,
    WORKLOADS,
    Dataset,
    states_path,
    trajectories_path,
)
from wmsched.schedules.types import Measurement

MARKER = ".unfinished"
OURS = (".lock", MARKER, PROBLEMS, "workloads.parquet", "trajectories", "states")

Row = dict[str, Any]


def stored_records(dataset: Dataset, workload_id: str) -> Iterator[Row]:
    """The rows of a rank group, a Parquet row group held at a time; older formats are filled up."""
    for row in _rows(trajectories_path(dataset.root, workload_id)):
        yield {"workload_id": workload_id, "disturbed": None, **row}


def stored_states(dataset: Dataset, workload_id: str) -> Iterator[Row]:
    """The program texts of a rank group with their hashes, a row group held at a time."""
    return _rows(states_path(dataset.root, workload_id))


def _rows(path: Path) -> Iterator[Row]:
    try:
        with pq.ParquetFile(path) as stored:
            for batch in stored.iter_batches(batch_size=ROWS_PER_GROUP):
                yield from batch.to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DatasetError(
            f"{path}: {error}; check with `wmsched-data validate`, then build it again"
        ) from error


def identity(row: Mapping[str, Any]) -> bytes:
    """16 bytes that two rows share when they are the same measurement of the same schedule."""
    whole = (row["steps"], row["costs"], row["error_no"], row["all_cost"], row["timestamp"])
    return hashlib.blake2b(orjson.dumps(whole), digest_size=16).digest()


def schedule(row: Mapping[str, Any]) -> bytes:
    """16 bytes that two rows of a rank group share when they are measurements of the same schedule."""
    return hashlib.blake2b(row["steps"].encode(), digest_size=16).digest()


def finished(out: Path, made: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of `out` if the same command has made it of the same data, as `made` tells; else None."""
    try:
        manifest = Dataset(out).manifest
    except DatasetError:
        return None
    if manifest.get("made") != made:
        return None
    (out / MARKER).unlink(missing_ok=True)  # of a kill after the manifest
    return manifest


class Derived:
    """Writes one dataset made of others; used as a context, which takes the directory's lock.

    Parameters
    ----------
    out : Path
        The directory: empty, missing, or left by a run that was stopped.
    made : mapping
        What made it (command, options, inputs); stands in the manifest.
    """

    def __init__(self, out: Path, made: Mapping[str, Any]) -> None:
        self.out = out
        self.made = dict(made)
        self.sources: dict[str, dict[str, Any]] = {}
        self.totals: Counter[str] = Counter(workloads=0, steps=0, states=0, replayed=0)
        self.dropped: Counter[str] = Counter()

    def __enter__(self) -> Derived:
        self._lock = locked(self.out)
        self._lock.__enter__()
        try:
            self._prepare()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        self._workloads = TableWriter(self.out / "workloads.parquet", WORKLOADS)
        self._workloads.__enter__()
        self._problems = open(self.out / PROBLEMS, "w", encoding="utf-8")
        return self

    def _prepare(self) -> None:
        # A kill leaves half-written files too, the table of workloads beside the others.
        for left in self.out.glob(f"{PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        names = {entry.name for entry in self.out.iterdir() if not is_partial(entry)} - {".lock"}
        if (self.out / MANIFEST).exists():
            raise DatasetError(f"{self.out} holds a dataset already; choose another --out")
        if names and (MARKER not in names or names - set(OURS)):
            raise DatasetError(f"{self.out} is not empty; choose another --out")
        for path in sorted(self.out.rglob("*.parquet")):
            path.unlink()
        remove_partials(self.out)
        write_json(self.out / MARKER, self.made)

    def add_source(self, name: str, entry: Mapping[str, Any]) -> None:
        """Enter a log; records that are not written again count as duplicates or as excluded."""
        held = {"path": name, "held": entry["records"], "records": 0, "errors_by_kind": {}}
        self.sources[name] = {**entry, **held, "excluded": entry.get("excluded", 0)}

    def problem(self, text: str) -> None:
        """Enter a line of problems.txt."""
        self._problems.write(text.replace("\n", " ") + "\n")

    def drop(self, row: Mapping[str, Any], reason: str) -> None:
        """Leave a record out as a duplicate."""
        self.dropped[row["source"]] += 1
        self.problem(f"{row['source']}:{row['line']}: {reason}")

    def group(self, workload: Row, records: Iterable[Row], states: Iterable[Row]) -> int:
        """Write one rank group; `workload` is its row, its id included. Return the number of records.

        A group that turns out to have no records is left out.
        """
        name = workload["workload_id"]
        with TableWriter(trajectories_path(self.out, name), TRAJECTORIES) as table:
            for row in records:
                table.add({**row, "workload_id": name})
                self._count(row)
        if not table.rows:
            trajectories_path(self.out, name).unlink()
            return 0
        with TableWriter(states_path(self.out, name), STATES) as texts:
            for row in states:
                texts.add(row)
        self._workloads.add(workload)
        self.totals.update(workloads=1, states=texts.rows)
        return table.rows

    def _count(self, row: Row) -> None:
        kind = Measurement(tuple(row["costs"]), row["error_no"]).kind
        entry = self.sources[row["source"]]
        entry["records"] += 1
        entry["errors_by_kind"][kind] = entry["errors_by_kind"].get(kind, 0) + 1
        self.totals.update(steps=len(row["action_texts"]), replayed=int(bool(row["states"])))

    def finish(self, extra: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Write what is left and the manifest; return it. `extra` are totals that only the caller knows."""
        self._problems.close()
        self._workloads.__exit__(None, None, None)
        kinds: Counter[str] = Counter()
        totals: Counter[str] = Counter(lines=0, records=0, bad=0, duplicates=0, excluded=0)
        for name, entry in self.sources.items():
            missing = entry.pop("held") - entry["records"]
            entry["duplicates"] = entry.get("duplicates", 0) + self.dropped[name]
            entry["excluded"] += missing - self.dropped[name]
            kinds.update(entry["errors_by_kind"])
            totals.update({count: entry[count] for count in totals})
        if not totals["records"]:
            raise DatasetError(f"{self.out}: no records would be in it; nothing is written")
        manifest = {
            "made": self.made,
            "sources": list(self.sources.values()),
            "totals": {**totals, **self.totals, **(extra or {}), "errors_by_kind": dict(kinds)},
            "libraries": libraries(),
        }
        written = write_manifest(self.out, manifest)
        (self.out / MARKER).unlink(missing_ok=True)
        return written

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._problems.close()
        if kind is not None:
            self._workloads.__exit__(kind, error, None)  # a second end of a finished table does no harm
        self._lock.__exit__(None, None, None)
