"""Workload files: an open JSON list of rows, plain or compressed with gzip. Needs no TVM."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from wmsched.base.errors import DatasetError

#: What `read_json` raises on a file that is missing, damaged or no JSON.
UNREADABLE = (OSError, EOFError, ValueError, zlib.error)


def read_json(path: str | Path) -> Any:
    """What a JSON file holds; by content, not by its name, it is unpacked first. Raises `UNREADABLE`."""
    data = Path(path).read_bytes()
    return orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def by_key(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows by the keys that logs may have of them.

    That is the row's own, and the one that TVM gives its task where it names a dense layer's axes
    (`upstream_key`); of two rows the first, one whose own key it is before others.
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
    """Rows of a workload file.

    Parameters
    ----------
    needs : sequence of str
        What each row must have; a workload key is a text.

    Raises
    ------
    DatasetError
        It cannot be read, or is no list of such rows.
    """
    try:
        rows = read_json(path)
    except UNREADABLE as e:
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
