"""Dataset directory: Parquet schemas and the reader. Needs pyarrow, not TVM.

Layout (`data_builder` writes it, training reads it)::

    DIR/manifest.json                        format version, sources, totals, checksums; written last, so its
                                             presence means complete
    DIR/workloads.parquet                    one row a workload and machine that has records
    DIR/trajectories/<workload_id>.parquet   one row a record, in the order of the sources
    DIR/states/<workload_id>.parquet         each distinct TensorIR text once, by content hash

A record without replay (failed, or not selected) has an empty `states` list. A failed measurement has
`seconds` NaN and its `error_no`. The dataset keeps both.

Times of two machines do not rank together, so a "workload" here is a rank group (`group_id`): one workload
key on one target with one set of hardware parameters and threads. Several groups may share a key. The data
fingerprint lists keys, so a leak is found across machines.

The reader takes earlier formats; `wmsched-data migrate` rewrites them. Format 1 has no groups (`workload_id`
hashes the key alone), no `disturbed` column and no checksum. Format 2 does not repeat `workload_id` in
records. Format 3 has no `threads` and `networks` of workloads.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wmsched.base.errors import DatasetError
from wmsched.schedules.types import Measurement, Trajectory, Workload

FORMAT_VERSION = 4
MANIFEST = "manifest.json"

WORKLOADS = pa.schema(
    [
        pa.field("workload_id", pa.string(), nullable=False),
        pa.field("workload_key", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("hardware", pa.list_(pa.int64()), nullable=False),
        pa.field("network", pa.string(), nullable=False),
        pa.field("desc", pa.string(), nullable=False),
        pa.field("weight", pa.int64(), nullable=False),
        pa.field("flop_ct", pa.float64(), nullable=False),
        pa.field("stages", pa.string(), nullable=False),
        pa.field("layout_rewrite", pa.int64(), nullable=False),
        pa.field("s0", pa.string(), nullable=False),
        # Threads of its programs, if the log's parameters do not say; 0: theirs.
        pa.field("threads", pa.int64(), nullable=False),
        # All networks with the program, if it is known of several.
        pa.field("networks", pa.list_(pa.string()), nullable=False),
    ]
)
FORMAT_4_DEFAULTS = {"threads": 0, "networks": ()}  # values of columns that older formats lack

TRAJECTORIES = pa.schema(
    [
        pa.field("workload_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("steps", pa.string(), nullable=False),
        pa.field("action_texts", pa.list_(pa.string()), nullable=False),
        pa.field("states", pa.list_(pa.string()), nullable=False),
        pa.field("costs", pa.list_(pa.float64()), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("error_no", pa.int64(), nullable=False),
        pa.field("all_cost", pa.float64(), nullable=False),
        pa.field("timestamp", pa.float64(), nullable=False),
        # Whether a noise check found the machine disturbed at the time; null without a check.
        pa.field("disturbed", pa.bool_(), nullable=True),
    ]
)
#: The records' columns by format; older formats lack newer columns.
TRAJECTORIES_OF: dict[int, pa.Schema] = {
    FORMAT_VERSION - age: pa.schema([field for field in TRAJECTORIES if field.name not in missing])
    for age, missing in enumerate(((), (), ("workload_id",), ("workload_id", "disturbed")))
}
#: The workloads' columns, likewise.
WORKLOADS_OF: dict[int, pa.Schema] = {
    version: pa.schema([field for field in WORKLOADS if version > 3 or field.name not in FORMAT_4_DEFAULTS])
    for version in TRAJECTORIES_OF
}
READ_VERSIONS = tuple(sorted(TRAJECTORIES_OF))

STATES = pa.schema(
    [
        pa.field("hash", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)


def state_hash(text: str) -> str:
    """Return the content hash of a program text: sha256, in hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def group_id(key: str, target: str, hardware: Sequence[int], threads: int = 0) -> str:
    """Return the name of a rank group, 16 hex digits: records of one program on one kind of machine.

    Parameters
    ----------
    key : str
        The workload's key.
    target : str
        TVM's target, as in the log.
    hardware : sequence of int
        TVM's hardware parameters, as in the log.
    threads : int
        Threads of its programs, if the parameters do not say (`WORKLOADS`).
    """
    named = [key, target, list(hardware), *([threads] if threads else [])]
    whole = json.dumps(named, separators=(",", ":"))
    return hashlib.sha256(whole.encode("utf-8")).hexdigest()[:16]


def trajectories_path(root: Path, workload_id: str) -> Path:
    """Return the file of a workload's records in the dataset `root`."""
    return root / "trajectories" / f"{workload_id}.parquet"


def states_path(root: Path, workload_id: str) -> Path:
    """Return the file of a workload's program texts in the dataset `root`."""
    return root / "states" / f"{workload_id}.parquet"


class Dataset:
    """A finished dataset directory.

    Parameters
    ----------
    root : str or Path
        The directory that `wmsched-data build` wrote.

    Raises
    ------
    DatasetError
        The directory is missing, unfinished, or of another format version.

    Examples
    --------
    >>> dataset = Dataset("work/ds")  # doctest: +SKIP
    >>> for key in dataset.workload_ids:  # doctest: +SKIP
    ...     records = dataset.trajectories(key)
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        path = self.root / MANIFEST
        if not self.root.is_dir():
            raise DatasetError(
                f"no dataset directory {self.root}; make one with `wmsched-data build LOGS --out {self.root}`"
            )
        if not path.is_file():
            raise DatasetError(
                f"{path} is missing, so the build of {self.root} has not finished; "
                "run the same `wmsched-data build` again to resume it"
            )
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            version = manifest["format_version"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DatasetError(
                f"{path} is not a dataset manifest ({error!r}); build the dataset again"
            ) from error
        if type(version) is not int or version not in READ_VERSIONS:
            raise DatasetError(
                f"{path}: format version {version!r}, this wmsched reads {READ_VERSIONS[0]} to "
                f"{FORMAT_VERSION}; take a newer wmsched, or build the dataset again from its logs"
            )
        self.manifest: dict[str, Any] = manifest
        self.version: int = version

    @cached_property
    def _rows(self) -> dict[str, dict[str, Any]]:
        table = self._table(self.root / "workloads.parquet", WORKLOADS_OF[self.version])
        return {row["workload_id"]: {**FORMAT_4_DEFAULTS, **row} for row in table.to_pylist()}

    def _table(self, path: Path, schema: pa.Schema) -> pa.Table:
        try:
            table = pq.read_table(path, partitioning=None)
        except (OSError, pa.ArrowInvalid) as error:
            raise DatasetError(
                f"{path}: {error}; check with `wmsched-data validate {self.root}`, then build again"
            ) from error
        if not table.schema.equals(schema):
            raise DatasetError(
                f"{path}: columns {table.schema.names}, expected {schema.names} "
                f"with the types of format {self.version}"
            )
        return table

    def _row(self, workload_id: str) -> dict[str, Any]:
        try:
            return self._rows[workload_id]
        except KeyError:
            raise DatasetError(
                f"{self.root} has no workload {workload_id!r}; `wmsched-data stats {self.root}` lists them"
            ) from None

    @property
    def workload_ids(self) -> list[str]:
        """Sorted ids of the workloads."""
        return sorted(self._rows)

    def row(self, workload_id: str) -> Mapping[str, Any]:
        """Return the workload's stored row (columns of `WORKLOADS`)."""
        return dict(self._row(workload_id))

    def workload(self, workload_id: str) -> Workload:
        """Return one workload; its `stages` are empty if the build had no compute DAG."""
        row = self._row(workload_id)
        labels = {name: row[name] for name in ("target", "flop_ct", "network", "desc", "weight", "threads")}
        workload = Workload(
            key=row["workload_key"],
            hardware=tuple(row["hardware"]),
            stages=Workload.stages_from_json(row["stages"]) if row["stages"] else (),
            networks=tuple(row["networks"]),
            **labels,
        )
        # `id` is cached and hashes the key alone; a dataset replaces it by the name of the rank group, since
        # several groups may share a key.
        workload.__dict__["id"] = workload_id
        return workload

    def workloads(self) -> list[Workload]:
        """Return all workloads, sorted by id: one for each rank group, so keys may repeat."""
        return [self.workload(workload_id) for workload_id in self.workload_ids]

    def trajectories(self, workload_id: str) -> list[Trajectory]:
        """Return a workload's records in the order of the sources, failed ones included."""
        return [_trajectory(workload_id, row) for row in self._records(workload_id).to_pylist()]

    def _records(self, workload_id: str) -> pa.Table:
        self._row(workload_id)
        path = trajectories_path(self.root, workload_id)
        return self._table(path, TRAJECTORIES_OF[self.version])

    def disturbed(self, workload_id: str) -> list[bool | None]:
        """Return for each record whether the machine was disturbed at the time; None without a check."""
        table = self._records(workload_id)
        if self.version == 1:
            return [None] * table.num_rows
        found: list[bool | None] = table["disturbed"].to_pylist()
        return found

    def sources(self, workload_id: str) -> list[tuple[str, int]]:
        """Return (log, line) of each record of a workload, in the order of `trajectories`."""
        table = self._records(workload_id)
        return list(zip(table["source"].to_pylist(), table["line"].to_pylist(), strict=True))

    def iter_trajectories(self) -> Iterator[tuple[str, list[Trajectory]]]:
        """Iterate over (workload id, trajectories), with one workload in memory."""
        for workload_id in self.workload_ids:
            yield workload_id, self.trajectories(workload_id)

    def states(self, workload_id: str) -> dict[str, str]:
        """Return a workload's program texts by hash."""
        self._row(workload_id)
        table = self._table(states_path(self.root, workload_id), STATES)
        return dict(zip(table["hash"].to_pylist(), table["text"].to_pylist(), strict=True))

    def initial(self, workload_id: str) -> str:
        """Return the TensorIR of the workload before any step (s0).

        Raises
        ------
        DatasetError
            The build had no compute DAG of the workload.
        """
        s0 = self._row(workload_id)["s0"]
        if not s0:
            raise DatasetError(
                f"{self.root}: workload {workload_id} has no initial program: "
                "its compute DAG was not in --workloads; "
                "build again with a workloads file that has it"
            )
        return self.states(workload_id)[s0]

    def fingerprint(self) -> dict[str, Any]:
        """Return a fingerprint of the data, small enough for a bundle.

        Returns
        -------
        dict
            `workloads`: sorted sha256 hex of each distinct workload key; `records`: number of records;
            `sources`: sorted sha256 hex of each source file with records. The order of sources does not
            matter.
        """
        keys = sorted(
            {hashlib.sha256(row["workload_key"].encode("utf-8")).hexdigest() for row in self._rows.values()}
        )
        return {
            "workloads": keys,
            "records": int(self.manifest["totals"]["records"]),
            "sources": sorted(
                source["sha256"] for source in self.manifest["sources"] if source.get("records", 1)
            ),
        }


def undisturbed(dataset: Dataset, workload_id: str) -> tuple[list[Trajectory], int]:
    """Return a workload's trajectories without disturbed ones, and the number of the latter."""
    marks = dataset.disturbed(workload_id)
    every = dataset.trajectories(workload_id)
    kept = [one for one, mark in zip(every, marks, strict=True) if not mark]
    return kept, len(every) - len(kept)


def ranked(dataset: Dataset, workload_id: str, *, disturbed: bool = False) -> tuple[list[Trajectory], int]:
    """Return a workload's trajectories to rank: measured or failed ones.

    Parameters
    ----------
    disturbed : bool
        Whether to keep records of a disturbed machine.

    Returns
    -------
    trajectories, left_out : the second is the number of disturbed ones removed
    """
    found, left_out = (
        (dataset.trajectories(workload_id), 0) if disturbed else undisturbed(dataset, workload_id)
    )
    return [one for one in found if one.measurement.kind != "unmeasured"], left_out


def _trajectory(workload_id: str, row: Mapping[str, Any]) -> Trajectory:
    measurement = Measurement(
        costs=tuple(row["costs"]),
        error_no=row["error_no"],
        all_cost=row["all_cost"],
        timestamp=row["timestamp"],
    )
    if measurement.ok == math.isnan(row["seconds"]):
        raise DatasetError(
            f"{row['source']}:{row['line']}: seconds {row['seconds']} contradicts its measurement"
        )
    return Trajectory(
        workload_id=workload_id,
        steps=json.loads(row["steps"]),
        action_texts=tuple(row["action_texts"]),
        states=tuple(row["states"]),
        measurement=measurement,
    )
