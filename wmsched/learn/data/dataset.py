"""The dataset directory: Parquet schemas and the reader. Needs pyarrow, not TVM.

Layout (the contract between `data_builder`, which writes it, and training, which reads it)::

    DIR/manifest.json                        format version, sources, totals, checksums; written last, so its
                                             presence means complete
    DIR/workloads.parquet                    one row a workload and machine that has records
    DIR/trajectories/<workload_id>.parquet   one row a record, in the order of the sources
    DIR/states/<workload_id>.parquet         each distinct TensorIR text once, by content hash

A record that could not be replayed, or was not chosen for replay, has an empty `states` list; a record whose
measurement failed has `seconds` NaN and its `error_no`. Neither is left out.

Times of two machines cannot be ranked together, so a "workload" here is a rank group: one workload key on one
target with one set of hardware parameters and threads (`group_id`). The same key may occur in several of
them. The data fingerprint lists keys, so a leak is found whatever machine the records came from.

Earlier formats are read as they are, and `wmsched-data migrate` rewrites them. In format 1, before groups,
`workload_id` hashes the key alone, and there is no `disturbed` column and no checksum; in format 2 the
records do not repeat their `workload_id`; in format 3 workloads have no `threads` and no `networks`.
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
        # That its programs ran on, where the log's parameters do not say it; 0: as they do.
        pa.field("threads", pa.int64(), nullable=False),
        # All that have the program, where it is known of more than the one above.
        pa.field("networks", pa.list_(pa.string()), nullable=False),
    ]
)
ADDED = {"threads": 0, "networks": ()}  # by format 4; and what an older one says there

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
        # Whether a noise check found the machine disturbed at the time; null where there was no check.
        pa.field("disturbed", pa.bool_(), nullable=True),
    ]
)
#: The records' columns by format; what a newer one added is missing in the older.
TRAJECTORIES_OF: dict[int, pa.Schema] = {
    FORMAT_VERSION - age: pa.schema([field for field in TRAJECTORIES if field.name not in missing])
    for age, missing in enumerate(((), (), ("workload_id",), ("workload_id", "disturbed")))
}
#: The workloads' columns, likewise.
WORKLOADS_OF: dict[int, pa.Schema] = {
    version: pa.schema([field for field in WORKLOADS if version > 3 or field.name not in ADDED])
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
    """Content hash of a program text: sha256, in hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def group_id(key: str, target: str, hardware: Sequence[int], threads: int = 0) -> str:
    """Name of a rank group, 16 hex digits: its records were measured on the same kind of machine.

    Parameters
    ----------
    key : str
        The workload's key.
    target : str
        TVM's target, as in the log.
    hardware : sequence of int
        TVM's hardware parameters, as in the log.
    threads : int
        That its programs ran on, where those do not say it (`WORKLOADS`).
    """
    named = [key, target, list(hardware), *([threads] if threads else [])]
    whole = json.dumps(named, separators=(",", ":"))
    return hashlib.sha256(whole.encode("utf-8")).hexdigest()[:16]


def trajectories_path(root: Path, workload_id: str) -> Path:
    """Where the records of a workload lie in the dataset `root`."""
    return root / "trajectories" / f"{workload_id}.parquet"


def states_path(root: Path, workload_id: str) -> Path:
    """Where the program texts of a workload lie in the dataset `root`."""
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
        return {row["workload_id"]: {**ADDED, **row} for row in table.to_pylist()}

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
        """Ids of the workloads, sorted."""
        return sorted(self._rows)

    def row(self, workload_id: str) -> Mapping[str, Any]:
        """The workload's row as stored (columns of `WORKLOADS`)."""
        return dict(self._row(workload_id))

    def workload(self, workload_id: str) -> Workload:
        """One workload. Its `stages` are empty where its compute DAG was not available to the build."""
        row = self._row(workload_id)
        labels = {name: row[name] for name in ("target", "flop_ct", "network", "desc", "weight", "threads")}
        workload = Workload(
            key=row["workload_key"],
            hardware=tuple(row["hardware"]),
            stages=Workload.stages_from_json(row["stages"]) if row["stages"] else (),
            networks=tuple(row["networks"]),
            **labels,
        )
        # `id` is cached and hashes the key alone; in a dataset it names the rank group, by which its records
        # are found, and the same key may be in several groups.
        workload.__dict__["id"] = workload_id
        return workload

    def workloads(self) -> list[Workload]:
        """All workloads, sorted by id: one for each rank group, so a key may occur more than once."""
        return [self.workload(workload_id) for workload_id in self.workload_ids]

    def trajectories(self, workload_id: str) -> list[Trajectory]:
        """The records of a workload in the order of the sources, failed ones among them."""
        return [_trajectory(workload_id, row) for row in self._records(workload_id).to_pylist()]

    def _records(self, workload_id: str) -> pa.Table:
        self._row(workload_id)
        path = trajectories_path(self.root, workload_id)
        return self._table(path, TRAJECTORIES_OF[self.version])

    def disturbed(self, workload_id: str) -> list[bool | None]:
        """Whether the machine was disturbed when each record was taken; None where nobody checked."""
        table = self._records(workload_id)
        if self.version == 1:
            return [None] * table.num_rows
        found: list[bool | None] = table["disturbed"].to_pylist()
        return found

    def sources(self, workload_id: str) -> list[tuple[str, int]]:
        """(log, line) of each record of a workload, in the order of `trajectories`."""
        table = self._records(workload_id)
        return list(zip(table["source"].to_pylist(), table["line"].to_pylist(), strict=True))

    def iter_trajectories(self) -> Iterator[tuple[str, list[Trajectory]]]:
        """(workload id, its trajectories) for each workload, one held at a time."""
        for workload_id in self.workload_ids:
            yield workload_id, self.trajectories(workload_id)

    def states(self, workload_id: str) -> dict[str, str]:
        """Program texts of a workload by hash."""
        self._row(workload_id)
        table = self._table(states_path(self.root, workload_id), STATES)
        return dict(zip(table["hash"].to_pylist(), table["text"].to_pylist(), strict=True))

    def initial(self, workload_id: str) -> str:
        """TensorIR of the workload before any step (s0).

        Raises
        ------
        DatasetError
            The workload's compute DAG was not available to the build.
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
        """What the dataset was made of, small enough for a bundle.

        Returns
        -------
        dict
            `workloads`: sorted sha256 hex of each workload key, once however many machines measured it;
            `records`: number of records; `sources`: sorted sha256 hex of each source file that any of them is
            from. Equal for equal data, whatever the order of the sources.
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
    """A workload's trajectories without those of a disturbed machine, and how many those were."""
    marks = dataset.disturbed(workload_id)
    every = dataset.trajectories(workload_id)
    kept = [one for one, mark in zip(every, marks, strict=True) if not mark]
    return kept, len(every) - len(kept)


def ranked(dataset: Dataset, workload_id: str, *, disturbed: bool = False) -> tuple[list[Trajectory], int]:
    """A workload's trajectories to rank: those that somebody measured, or failed to.

    Parameters
    ----------
    disturbed : bool
        Those of a disturbed machine, too.

    Returns
    -------
    trajectories, left_out : the second is the number of disturbed ones that are not among them
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
