"""A set of hashes that does not outgrow memory: beyond a limit it lives in a temporary file."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from types import TracebackType

#: Hashes held in memory: some 2 MB. A workload of TenSet has a few thousand records, so its lie here alone.
LIMIT = 20_000
PREFIX = "wmsched-seen-"  # of a folder with the rest


class DiskSet:
    """Remembers 16-byte hashes; used as a context, which removes the file.

    Parameters
    ----------
    limit : int
        How many are held in memory.
    folder : Path, optional
        Where the file is made, beyond the limit; by default the system's folder for temporary files, which on
        many machines is memory.
    """

    def __init__(self, limit: int = LIMIT, *, folder: Path | None = None) -> None:
        self.limit = limit
        self._where = folder
        self._held: set[bytes] = set()
        self._file: sqlite3.Connection | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> DiskSet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget everything and remove the file."""
        self._held.clear()
        if self._file is not None:
            self._file.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._file = self._folder = None

    def add(self, mark: bytes) -> bool:
        """Remember a hash; return whether it is new."""
        if mark in self._held:
            return False
        if self._file is not None and self._file.execute("SELECT 1 FROM seen WHERE k=?", (mark,)).fetchone():
            return False
        self._held.add(mark)
        if len(self._held) >= self.limit:
            self._spill()
        return True

    def _spill(self) -> None:
        if self._file is None:
            self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=self._where)
            self._file = sqlite3.connect(f"{self._folder.name}/seen.db", isolation_level=None)
            # Nothing in it outlives the process, so nothing need be safe against its end.
            self._file.execute("PRAGMA journal_mode=OFF")
            self._file.execute("PRAGMA synchronous=OFF")
            self._file.execute("PRAGMA cache_size=-4096")  # kilobytes
            self._file.execute("CREATE TABLE seen (k BLOB PRIMARY KEY) WITHOUT ROWID")
        self._file.execute("BEGIN")
        self._file.executemany("INSERT INTO seen VALUES (?)", ((mark,) for mark in sorted(self._held)))
        self._file.execute("COMMIT")
        self._held.clear()
