"""Recorded measurements by workload, read from tuning logs without TVM."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import LogError
from wmsched.schedules.log_file import skipped
from wmsched.schedules.steps import parse_record

logger = logging.getLogger("benchmarks")


@dataclass(slots=True)
class Measured:
    """One workload's programs: their transform steps, seconds (NaN: failed) and what measuring each took."""

    key: str
    target: str
    hardware: tuple[int, ...]
    source: str
    steps: list[list[list[Any]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> NDArray[np.float64]:
        return np.array(self.times, dtype=np.float64)


def log_files(paths: Iterable[str | Path]) -> list[Path]:
    """The logs named, and those in the folders named, sorted. FileNotFoundError for a missing one."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.name.endswith((".json", ".json.gz")))
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"{path}: no such log; give a file or a folder of tuning logs")
    return list(dict.fromkeys(found))


def digest(files: Iterable[Path], exclude: Iterable[str]) -> str:
    """16 hex digits that name a model fitted to these logs without those workload keys."""
    found = hashlib.sha256(repr(sorted(exclude)).encode())
    for file in files:
        found.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """("file:line", line) of a log, gzipped or not, without the lines that TVM skips too."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not skipped(line):
                yield f"{path.name}:{number}", line


def apart(paths: Iterable[str | Path]) -> list[Measured]:
    """The programs of each workload on each machine that the logs are of, as `read` has one machine's."""
    return list(_read(paths, machines=True).values())


def read(paths: Iterable[str | Path]) -> dict[str, Measured]:
    """The programs of each workload key in the logs, in order, one entry for each distinct program.

    A program measured twice keeps its better time. Lines that are no records are counted, logged and left
    out, as are records for another target than a workload's first: times of two machines are no group.
    """
    return _read(paths, machines=False)


def _read(paths: Iterable[str | Path], *, machines: bool) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    places: dict[tuple[str, str], int] = {}
    bad = other = 0
    for path in log_files(paths):
        for place, line in lines(path):
            try:
                record = parse_record(line, place=place)
            except LogError as error:
                bad += 1
                logger.warning("%s", error)
                continue
            key, target, hardware = record.workload_key, record.target, tuple(record.hardware)
            name = repr((key, target, hardware)) if machines else key
            group = found.setdefault(name, Measured(key, target, hardware, path.name))
            if (group.target, group.hardware) != (target, hardware):
                other += 1
                continue
            seconds = record.measurement.seconds if record.measurement.ok else float("nan")
            identity = (name, json.dumps(record.steps))
            if identity in places:
                at = places[identity]
                group.times[at] = float(np.fmin(group.times[at], seconds))
                continue
            places[identity] = len(group.steps)
            group.steps.append(record.steps)
            group.times.append(seconds)
            group.costs.append(record.measurement.all_cost)
    if bad:
        logger.warning("%d lines were no records and were left out", bad)
    if other:
        logger.warning(
            "%d records for another target than their workload's first were left out: give the logs of one "
            "machine",
            other,
        )
    return found
