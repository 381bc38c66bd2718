"""What a tuning run has measured, by task, as an online model learns it: from memory, logs and saved
models."""

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
Pair = tuple[Steps, float]  # a candidate, and its seconds: NaN where it failed


class History:
    """Candidates and their seconds, by task, in the order in which they were measured."""

    def __init__(self) -> None:
        self._pairs: dict[Key, list[Pair]] = {}
        self._known: dict[Key, set[bytes]] = {}  # of each pair a hash

    def add(self, key: Key, pairs: list[Pair]) -> list[Pair]:
        """Take what was measured of a task; those that were not known, of a log that is read once more."""
        known, new = self._known.setdefault(key, set()), []
        for pair in pairs:
            name = hashlib.blake2b(orjson.dumps(pair), digest_size=16).digest()
            if name not in known:
                known.add(name)
                new.append(pair)
        self._pairs.setdefault(key, []).extend(new)
        return new

    def of(self, key: Key) -> list[Pair]:
        """All of a task; empty if nothing was measured."""
        return list(self._pairs.get(key, ()))

    def items(self) -> Iterator[tuple[Key, list[Pair]]]:
        """Every task with what was measured of it."""
        yield from self._pairs.items()

    def save(self, path: Path) -> None:
        """Write JSON; NaN seconds become null."""
        path.write_bytes(
            orjson.dumps([{"task": key, "observed": pairs} for key, pairs in self._pairs.items()])
        )

    @classmethod
    def load(cls, path: Path) -> History:
        """The inverse of `save`; empty where there is no such file.

        Raises
        ------
        BundleError
            If the file is something else.
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
        """Read an AutoScheduler log; programs in it that were never measured are left out.

        Parameters
        ----------
        path : path
            One JSON object a line; lines that start with ``#`` or a space are skipped, as TVM does.
        limit : int, optional
            Take the first so many records only.

        Returns
        -------
        observations : Observations
        taken : int
            How many records.
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
