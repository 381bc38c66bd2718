"""Read workload files: a JSON list of rows, plain or compressed with gzip. Needs no TVM."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from wmsched.base.errors import DatasetError

#: Exceptions of `read_json` for a file that is missing, damaged or no JSON.
READ_ERRORS = (OSError, EOFError, ValueError, zlib.error)


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file; gzip is detected by content. Raises `READ_ERRORS`."""
    data = Path(path).read_bytes()
    return orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def by_key(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return rows by every workload key that logs may have for them.

    That is the row's own key, and ``upstream_key``: TVM's key for the task where it names a dense layer's
    axes. Own keys win over upstream ones, and earlier rows over later ones.
    """
    found: dict[str, dict[str, Any]] = {}
    others: list[tuple[str, dict[str, Any]]] = []
    for row in rows:
        found.setdefault(row["workload_key"], row)
        if other := row.get("upstream_key"):
            others.append((str(other), row))
    for key, row in others:
        found.setdefault(key, row)
    return found


def load_rows(
    path: str | Path, *, needs: Sequence[str] = ("workload_key", "tensors")
) -> list[dict[str, Any]]:
    """Return the rows of a workload file.

    Parameters
    ----------
    needs : sequence of str
        Keys that each row must have; a workload key is a text.

    Raises
    ------
    DatasetError
        The file cannot be read, or is no list of such rows.
    """
    try:
        rows = read_json(path)
    except READ_ERRORS as e:
        raise DatasetError(
            f"{path}: not a readable workload file ({e}); it is a JSON list, .gz or plain"
        ) from e
    if not isinstance(rows, list):
        raise DatasetError(
            f"{path}: a workload file is a JSON list of rows, and this is a {type(rows).__name__}"
        )
    for place, row in enumerate(rows):
        whole = isinstance(row, dict) and set(needs) <= row.keys()
        if not whole or not isinstance(row.get("workload_key", ""), str):
            wanted = " and ".join(f'"{name}"' for name in needs)
            raise DatasetError(f"{path}: row {place} (from 0) has no {wanted}, or a key that is no text")
    return rows
