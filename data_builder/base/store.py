"""Atomic files: what bears its final name is complete, whatever moment the process was killed at."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from wmsched.base import files
from wmsched.base.errors import DatasetError
from wmsched.base.files import PARTIAL_SUFFIX, atomic_open, atomic_path

ROWS_PER_GROUP = 1024


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that the old content or the new one is there, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_open(path) as stream:
        stream.write(data)


def write_json(path: Path, value: Any, *, indent: bool = False) -> None:
    """Write `value` as JSON with sorted keys, so that equal values are equal files."""
    options = orjson.OPT_SORT_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    write_bytes(path, orjson.dumps(value, option=options) + b"\n")


class TableWriter:
    """Writes one Parquet file in row groups of fixed size; it appears under its name when the block ends
    well.

    Parameters
    ----------
    path : Path
        The file. Its directory is made where missing.
    schema : pyarrow.Schema
        Columns; each row has exactly these.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self._pending: list[Mapping[str, Any]] = []

    def __enter__(self) -> TableWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(atomic_path(self.path))
            # No dictionary for texts: states differ, and zstd does better on them alone.
            self._writer = pq.ParquetWriter(file, self.schema, compression="zstd", use_dictionary=False)
            stack.callback(self._writer.close)
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def add(self, row: Mapping[str, Any]) -> None:
        """Append one row."""
        self._pending.append(row)
        self.rows += 1
        if len(self._pending) >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_pylist(self._pending, schema=self.schema))
            self._pending = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _finish(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:
            self._flush()


def remove_partials(root: Path) -> None:
    """Remove what killed processes left half-written under `root`."""
    for path in root.rglob(f".*{PARTIAL_SUFFIX}"):
        path.unlink(missing_ok=True)


def locked(out: Path) -> AbstractContextManager[None]:
    """One writer at a time in a directory; the lock goes with the process.

    Raises
    ------
    DatasetError
        Another process holds it, or the directory cannot be written.
    """
    return files.locked(out / ".lock", whose=out, option="--out", error=DatasetError)
