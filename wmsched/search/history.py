"""Measurement history of a tuning run, by task, for online learning: from memory, logs, saved models."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from wmsched.base.errors import BundleError, LogError
from wmsched.schedules.log_file import skipped
from wmsched.schedules.steps import check_sizes, parse_record

Key = tuple[str, str]  # workload key, target
Steps = list[list[Any]]
Pair = tuple[Steps, float]  # a candidate and its seconds, NaN if failed


class History:
    """Candidates and their seconds, by task, in order of measurement.

    Examples
    --------
    >>> history = History()
    >>> history.add(("key", "llvm"), [([["SP", 0]], 1e-3)])
    [([['SP', 0]], 0.001)]
    """

    def __init__(self) -> None:
        self._pairs: dict[Key, list[Pair]] = {}
        self._known: dict[Key, set[bytes]] = {}  # hashes of pairs

    def add(self, key: Key, pairs: list[Pair]) -> list[Pair]:
        """Add measurements of a task; return the new ones (a log may be read again)."""
        known, new = self._known.setdefault(key, set()), []
        for pair in pairs:
            name = hashlib.blake2b(orjson.dumps(pair), digest_size=16).digest()
            if name not in known:
                known.add(name)
                new.append(pair)
        self._pairs.setdefault(key, []).extend(new)
        return new

    def of(self, key: Key) -> list[Pair]:
        """Return all measurements of a task; empty if there are none."""
        return list(self._pairs.get(key, ()))

    def items(self) -> Iterator[tuple[Key, list[Pair]]]:
        """Iterate over tasks with their measurements."""
        yield from self._pairs.items()

    def save(self, path: Path) -> None:
        """Write JSON; NaN seconds become null."""
        path.write_bytes(
            orjson.dumps([{"task": key, "observed": pairs} for key, pairs in self._pairs.items()])
        )

    @classmethod
    def load(cls, path: Path) -> History:
        """Read a file of `save`; empty if there is none.

        Raises
        ------
        BundleError
            If the file is no history.
        """
        told = cls()
        if path.is_file():
            try:
                for row in orjson.loads(path.read_bytes()):
                    workload_key, target = row["task"]
                    pairs = [(steps, float("nan") if s is None else float(s)) for steps, s in row["observed"]]
                    told.add((workload_key, target), pairs)
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                raise BundleError(
                    f"{path} does not hold a run's measurements ({error}): delete it to go on without them"
                ) from error
        return told

    @classmethod
    def read_log(
        cls, path: str | os.PathLike[str], *, limit: int | None = None
    ) -> tuple[History, int, list[str]]:
        """Read an AutoScheduler log without its unmeasured programs.

        Parameters
        ----------
        path : path
            One JSON object a line; lines that start with ``#`` or a space are skipped, like in TVM.
        limit : int, optional
            Maximum number of records.

        Returns
        -------
        history : History
        taken : int
            Number of records.
        bad : list of str
            ``file:line: reason`` for each line that is no record.
        """
        told, taken, bad = cls(), 0, []
        with open(path, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                if limit is not None and taken >= limit:
                    break
                if skipped(line):
                    continue
                try:
                    record = parse_record(line, place=f"{path}:{number}")
                    check_sizes(record.steps, place=f"{path}:{number}")
                except LogError as error:
                    bad.append(str(error))
                    continue
                if record.measurement.kind == "unmeasured":
                    continue
                key = (record.workload_key, record.target)
                told.add(key, [(record.steps, record.measurement.seconds)])
                taken += 1
        return told, taken, bad
