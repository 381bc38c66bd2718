"""Recover, check and count the files of a MetaSchedule database. Needs no TVM.

TVM appends a line to ``database_workload.json`` for a program, and one to ``database_tuning_record.json`` for
a measurement of it. A killed process therefore leaves at most one incomplete line, the last.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from wmsched.base.errors import LogError
from wmsched.base.files import atomic_open
from wmsched.schedules.types import MAX_SECONDS

if TYPE_CHECKING:
    from wmsched.schedules.traces import Steps

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
SETTINGS_FILE = "measured.json"  # how `meta_tune` built and timed the programs
RECORD_REMEDY = "delete this line, or move the folder away and start again"
WORKLOAD_REMEDY = (
    "records go by the numbers of this file's lines, so delete none: move the folder away and start again"
)


def schedule_key(steps: Steps) -> bytes:
    """Return a schedule's identity, a hash of its steps."""
    return hashlib.blake2b(orjson.dumps(steps), digest_size=16).digest()


def cut(path: Path) -> int:
    """Truncate an incomplete last line of a file; return the number of bytes removed."""
    if not path.exists():
        return 0
    with open(path, "rb+") as stream:
        size = stream.seek(0, os.SEEK_END)
        end = size
        while end:
            start = max(0, end - 65536)
            stream.seek(start)
            at = stream.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            stream.truncate(end)
            stream.flush()
            os.fsync(stream.fileno())
        return size - end


def mend(folder: Path) -> list[str]:
    """Truncate incomplete last lines of a database; return a message for each file changed."""
    lost = {path: cut(path) for path in (folder / WORKLOADS, folder / RECORDS)}
    message = "{}: cut off {} bytes of a line that was never finished"
    return [message.format(path, count) for path, count in lost.items() if count]


def measured_otherwise(folder: Path, how: Mapping[str, Any]) -> str:
    """Return the settings of a folder's records, in words, if they differ from `how`; else "".

    A folder without records stores `how` for later runs.
    """
    path, records = folder / SETTINGS_FILE, folder / RECORDS
    if not records.is_file() or not records.stat().st_size:
        with atomic_open(path) as file:
            file.write(orjson.dumps(dict(how)) + b"\n")
        return ""
    try:
        before = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return "by another tool or an older wmsched"
    return "" if before == how else worded(before)


def worded(how: Any) -> str:
    """Return measurement settings in words, for a warning."""
    return f"with {', '.join(f'{name}={value}' for name, value in dict(how).items())}"


def check(folder: Path) -> int:
    """Return the number of records of a recovered database; 0 without files.

    Raises
    ------
    LogError
        A line is no record, or its program is missing. TVM would refuse the whole file.
    """
    from wmsched.schedules.traces import steps_of  # not at `wmsched --help`, which imports this module

    programs = records = 0
    for number, line in _numbered_lines(folder / WORKLOADS):
        row = _parse(line, folder / WORKLOADS, number)
        if not (isinstance(row, list) and len(row) == 2 and all(isinstance(part, str) for part in row)):
            raise LogError(
                f"no program, which is [hash, module]: {WORKLOAD_REMEDY}",
                place=f"{folder / WORKLOADS}:{number}",
            )
        programs += 1
    for number, line in _numbered_lines(folder / RECORDS):
        place = f"{folder / RECORDS}:{number}"
        row = _parse(line, folder / RECORDS, number)
        try:
            program, (trace, _, _, _) = row
        except (TypeError, ValueError):
            raise LogError(
                f"no record, which is [program, [trace, seconds, target, arguments]]: {RECORD_REMEDY}",
                place=place,
            ) from None
        if type(program) is not int or not 0 <= program < programs:
            raise LogError(
                f"it is of program {program}, and {WORKLOADS} has {programs}: {RECORD_REMEDY}", place=place
            )
        try:
            steps_of(trace)
        except LogError as error:
            raise LogError(f"{error.reason}: {RECORD_REMEDY}", place=place) from None
        records += 1
    return records


def rescale(path: Path, factors: Mapping[int, float]) -> None:
    """Multiply the run times of records by factors, atomically; failures stay what they are.

    Parameters
    ----------
    path : Path
        The records' file.
    factors : mapping of int to float
        By the number of a line, from 0 on.

    Raises
    ------
    LogError
        A line to correct is no record, or is not there.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    for number, factor in factors.items():
        place = f"{path}:{number + 1}"
        if number >= len(lines):
            raise LogError(
                f"there are {len(lines)} records: move the folder away and start again", place=place
            )
        row = _parse(lines[number], path, number + 1)
        try:
            times = [float(seconds) for seconds in row[1][1] or ()]
            row[1][1] = [seconds * factor if seconds < MAX_SECONDS else seconds for seconds in times]
        except (TypeError, ValueError, IndexError):
            raise LogError(f"no record: {RECORD_REMEDY}", place=place) from None
        lines[number] = orjson.dumps(row) + b"\n"
    with atomic_open(path) as file:
        file.writelines(lines)


def mean(seconds: Sequence[float]) -> float:
    """Return the mean of run times in seconds; NaN if there are none or one marks a failure."""
    times = [float(t) for t in seconds]
    fine = bool(times) and all(0 < t < MAX_SECONDS for t in times)  # False for NaN
    return sum(times) / len(times) if fine else math.nan


def records_of(database: Any, workload: Any) -> list[Any]:
    """Return all records of a workload, including failures, which TVM's ``get_top_k`` leaves out."""
    return [one for one in database.get_all_tuning_records() if one.workload.same_as(workload)]


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.is_file():
        with path.open("rb") as stream:
            yield from enumerate(stream, start=1)


def _parse(line: bytes, path: Path, number: int) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        remedy = WORKLOAD_REMEDY if path.name == WORKLOADS else RECORD_REMEDY
        raise LogError(f"not JSON ({error}): {remedy}", place=f"{path}:{number}") from None
