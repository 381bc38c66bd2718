"""MetaSchedule's databases as they lie on disk; needs no TVM.

A database is a folder with two files of one JSON value a line: ``database_workload.json`` with
``[hash, module]`` and ``database_tuning_record.json`` with ``[workload's line, [trace, seconds, target,
arguments]]``. TVM appends to them as it tunes, so a kill leaves at most one broken line, the last. Here they
are read gzipped too, under their names and ``.gz``; where a folder has both, the plain one is the database.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from data_builder.read.log_paths import check_name, expand, files_under
from data_builder.read.log_reader import LogReader
from wmsched.base.errors import DatasetError, LogError, shown
from wmsched.schedules.database import RECORDS, WORKLOADS
from wmsched.schedules.steps import parse_record
from wmsched.schedules.traces import Steps, steps_of
from wmsched.schedules.types import MAX_SECONDS, Measurement

THREADS = "threads.json"  # how many the programs of a collected one ran on, a number
GZ = ".gz"
UNKNOWN_ERROR = 8
GLANCE = 20  # lines of a file that say whether it is a log of AutoScheduler
# A runner that returned these has them written as they are, and TVM itself cannot read its file again.
_NO_NUMBER = re.compile(rb"(?<=[\[,])-?(?:nan|inf)(?=[,\]])")


@dataclass(frozen=True, slots=True)
class MetaRecord:
    """One line of ``database_tuning_record.json``. `workload` counts the lines of the other file from 0."""

    workload: int
    steps: Steps
    measurement: Measurement
    target: dict[str, Any]


def databases(paths: Sequence[str | Path]) -> list[Path]:
    """The database folders among the named paths; [] when these are logs of another kind.

    Of a folder these are all below it; of a database's file its own alone.

    Raises
    ------
    DatasetError
        Some of the paths hold databases and some do not, or a folder holds logs of AutoScheduler too: a
        dataset is of one scheduler. Or of a database one of the files is missing.
    LogError
        A database's name is not UTF-8.
    """
    found = {path: _databases_at(path) for path in map(Path, paths)}
    if not any(found.values()):
        return []
    without = [str(path) for path, folders in found.items() if not folders]
    if without:
        raise DatasetError(
            f"{without[0]} holds no MetaSchedule database ({WORKLOADS}, {RECORDS}) and another path does: "
            "a dataset is of one scheduler, build two"
        )
    for path, folders in found.items():
        log = _ansor_log(path)
        if log:
            raise DatasetError(
                f"{path} holds a MetaSchedule database, {folders[0]}, and logs of AutoScheduler, the first "
                f"{log}: a dataset is of one scheduler, build two, of {folders[0] / RECORDS} and of the logs "
                "by their names"
            )
    each = dict.fromkeys(folder for folders in found.values() for folder in folders)
    for folder in each:
        check_name(folder)
        if not stored(folder, WORKLOADS).is_file():
            raise DatasetError(
                f"{folder} has {RECORDS} and no {WORKLOADS}: its traces are of unknown programs"
            )
    return list(each)


def stored(folder: Path, name: str) -> Path:
    """The file of a database that is called so: gzipped where there is no plain one."""
    plain, packed = folder / name, folder / f"{name}{GZ}"
    return packed if packed.is_file() and not plain.is_file() else plain


def _databases_at(path: Path) -> list[Path]:
    """The database folders that one named path means."""
    if path.is_dir():
        found = {entry.parent for entry in files_under(path) if entry.name.removesuffix(GZ) == RECORDS}
        return sorted(found)
    if path.name.removesuffix(GZ) not in (WORKLOADS, RECORDS):
        return []
    for file in (path, stored(path.parent, RECORDS)):
        if not file.is_file():
            raise DatasetError(
                f"no file {file}: name the folder of a MetaSchedule database, or one of its files"
            )
    return [path.parent]


def _ansor_log(path: Path) -> str:
    """The first log of AutoScheduler in a folder that is named itself; "" where there is none."""
    logs = expand([path]).logs if path.is_dir() else ()
    own = (WORKLOADS, RECORDS)
    return next((log for log in logs if Path(log).name.removesuffix(GZ) not in own and _is_ansor(log)), "")


def _is_ansor(log: str) -> bool:
    # By content: beside a database lie its names, and the .log files that a search writes for people.
    for line in itertools.islice(LogReader(log), GLANCE):
        if not line.problem:
            try:
                parse_record(line.data)
            except LogError:
                continue
            return True
    return False


def read_modules(folder: Path) -> dict[int, Any]:
    """``[hash, module]`` of each good line of a database's workloads, by the line's number from 0."""
    found: dict[int, Any] = {}
    for line in LogReader(str(stored(folder, WORKLOADS)), max_line_bytes=256 << 20):
        if line.problem:
            continue
        try:
            row = orjson.loads(line.data)
        except orjson.JSONDecodeError:
            continue
        if isinstance(row, list) and len(row) == 2 and all(isinstance(part, str) for part in row):
            found[line.number - 1] = row
    return found


def parse_line(data: bytes, *, place: str = "") -> MetaRecord:
    """Read one tuning record.

    Raises
    ------
    LogError
        It is none; the message says which part is wrong.
    """
    try:
        row = orjson.loads(_NO_NUMBER.sub(b"null", data))
        orjson.dumps(row)  # its parts are written again, and reading bears a deeper nesting than writing
    except orjson.JSONDecodeError as error:
        raise LogError(f"not JSON ({error})", place=place) from None
    except TypeError as error:
        raise LogError(f"nested too deeply for a tuning record ({error})", place=place) from None
    try:
        workload, (trace, seconds, target, _) = row
    except (TypeError, ValueError):
        raise LogError(
            "no tuning record: it is [workload, [trace, seconds, target, arguments]]", place=place
        ) from None
    if type(workload) is not int or workload < 0:
        raise LogError(f"{shown(workload)} is no line of {WORKLOADS}", place=place)
    if target is not None and not isinstance(target, dict):
        raise LogError("the target is no JSON object", place=place)
    times = [0.0] if seconds is None else seconds  # proposed and never timed
    if not isinstance(times, list) or not all(type(t) in (int, float) or t is None for t in times):
        raise LogError("the run times are no list of numbers", place=place)
    return MetaRecord(workload, steps_of(trace, place=place), measured(times), target or {})


def measured(times: Sequence[float | None]) -> Measurement:
    """The run times of a record; TVM writes 1e10 where there is none, and nan as it is."""
    costs = tuple(float("nan") if t is None else float(t) for t in times)
    fine = bool(costs) and all(math.isfinite(t) and t < MAX_SECONDS for t in costs)
    return Measurement(costs or (1e10,), 0 if fine else UNKNOWN_ERROR)


def read_records(folder: Path) -> Iterator[tuple[int, MetaRecord | None, str]]:
    """(line number, record, problem) of each line; the record is None where there is a problem."""
    for line in LogReader(str(stored(folder, RECORDS))):
        if line.problem:
            yield line.number, None, line.problem
            continue
        try:
            yield line.number, parse_line(line.data), ""
        except LogError as error:
            yield line.number, None, error.reason


def append(path: Path, value: Any) -> None:
    """Append one JSON line and see it on disk."""
    with open(path, "ab") as stream:
        stream.write(orjson.dumps(value) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
