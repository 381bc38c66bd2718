"""Count, check and recover a tuning log that other processes append to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from wmsched.base.errors import LogError
from wmsched.base.files import atomic_open
from wmsched.schedules.steps import parse_record
from wmsched.schedules.types import Record

Key = tuple[str, str]  # workload key, target


@dataclass(frozen=True)
class Tally:
    """Contents of a log, by (workload key, target)."""

    trials: dict[Key, int] = field(default_factory=dict)  # records, failed ones included
    best: dict[Key, Record] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)  # "file:line: reason" of each line that is no record

    @property
    def total(self) -> int:
        """Number of all records."""
        return sum(self.trials.values())


class GrowingLog:
    """A log that TVM appends to; detects failed writes, which TVM does not report.

    Parameters
    ----------
    path : Path

    Examples
    --------
    >>> log = GrowingLog(path)
    >>> save_records(path, inputs, results)
    >>> log.check(len(inputs))
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size, self._records = path.stat().st_size if path.exists() else 0, 0

    def check(self, records: int) -> None:
        """Raise LogError unless the log grew by whole lines since the last, smaller `records`.

        Parameters
        ----------
        records : int
            Number of records written since the log was opened.
        """
        if records == self._records:
            return
        try:
            with self.path.open("rb") as lines:
                size = lines.seek(0, os.SEEK_END)
                lines.seek(max(0, size - 1))
                ended = lines.read(1) == b"\n"
        except OSError as error:
            raise LogError(
                f"the log went away ({error.strerror or error}): see to its folder, then go on (--resume)",
                place=str(self.path),
            ) from error
        if size <= self._size or not ended:
            raise LogError(
                f"the last {records - self._records} records could not be written: make room on the disk, "
                "then go on (--resume)",
                place=str(self.path),
            )
        self._size, self._records = size, records

    def rewritten(self) -> None:
        """Take the present size for that of the records so far: the file was replaced by a corrected one."""
        self._size = self.path.stat().st_size


def rescale(path: Path, factor_of: Callable[[Record], float]) -> int:
    """Multiply the costs of records by what `factor_of` says, atomically; return how many changed."""
    lines, changed = path.read_bytes().splitlines(keepends=True), 0
    for number, line in enumerate(lines):
        if skipped(line):
            continue
        try:
            factor = factor_of(parse_record(line, place=f"{path}:{number + 1}"))
        except LogError:  # another program's line
            continue
        if factor != 1.0:
            row = orjson.loads(line)
            row["r"][0] = [cost * factor for cost in row["r"][0]]
            lines[number] = orjson.dumps(row) + b"\n"
            changed += 1
    if changed:
        with atomic_open(path) as out:
            out.writelines(lines)
    return changed


def tally(path: Path) -> Tally:
    """Return the number of records and the best record of each task in a log; a missing file is empty."""
    found = Tally()
    if path.is_file():
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if skipped(line):
                    continue
                try:
                    record = parse_record(line, place=f"{path}:{number}")
                except LogError as error:
                    found.bad.append(str(error))
                    continue
                key = (record.workload_key, record.target)
                found.trials[key] = found.trials.get(key, 0) + 1
                held = found.best.get(key)
                if record.measurement.ok and (
                    held is None or record.measurement.seconds < held.measurement.seconds
                ):
                    found.best[key] = record
    return found


def other_target(log: Path, recorded: str, target: str, *, option: str) -> LogError:
    """Return the error for a log whose records are of another target than the run's.

    Parameters
    ----------
    option : str
        Command-line option that names another log.
    """
    return LogError(
        f"its records are of the target {recorded!r}, and this run is for {target!r}: give another {option}, "
        "or that --target",
        place=str(log),
    )


def is_json(line: bytes, *, place: str = "") -> None:
    """Raise LogError if a line is not JSON, such as half a line or two joined ones."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise LogError(f"not JSON ({error})", place=place) from None


def broken(path: Path) -> bool:
    """Return whether a log has a line that is not JSON, at which TVM's reader stops."""
    with path.open("rb") as lines:
        for line in lines:
            if not skipped(line):
                try:
                    is_json(line)
                except LogError:
                    return True
    return False


def mend(path: Path, *, check: Callable[..., object] = parse_record) -> list[str]:
    """Make a log safe for TVM to read and for appending.

    TVM's reader stops at the first line that it cannot parse, and at empty ones. A killed process leaves half
    a line, to which the next record would be joined. This function moves lines that are no records to
    ``<log>.bad`` and drops empty ones.

    Parameters
    ----------
    path : Path
    check : callable (line, place=)
        Raises LogError if the line is no record.

    Returns
    -------
    list of str
        ``file:line: reason`` of each line moved.
    """
    path = path.resolve()  # keep a link: write to its target
    good: list[bytes] = []
    bad: list[bytes] = []
    reasons: list[str] = []
    text = path.read_bytes()
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        line = line if line.endswith(b"\n") else line + b"\n"
        if not line.strip() and line[:1] != b" ":
            continue
        if not skipped(line):
            try:
                check(line, place=f"{path}:{number}")
            except LogError as error:
                bad.append(line)
                reasons.append(str(error))
                continue
        good.append(line)
    if bad:
        with path.with_name(path.name + ".bad").open("ab") as aside:
            aside.writelines(bad)
            aside.flush()
            os.fsync(aside.fileno())
    if b"".join(good) != text:
        with atomic_open(path) as out:
            out.writelines(good)
    return reasons


def skipped(line: bytes) -> bool:
    """Return whether a line is a comment, or blank; TVM's reader skips all of these but empty lines."""
    return not line.strip() or line[:1] in (b"#", b" ")
