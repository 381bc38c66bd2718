"""A tuning log as a file that grows while it is used: count what is in it, find the best, mend its end."""

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
    """What a log holds, by (workload key, target)."""

    trials: dict[Key, int] = field(default_factory=dict)  # records, failed ones included
    best: dict[Key, Record] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)  # "file:line: reason", one for each line that is no record

    @property
    def total(self) -> int:
        """All records."""
        return sum(self.trials.values())


class GrowingLog:
    """A log that TVM appends to, which does not say when it cannot.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size, self._records = path.stat().st_size if path.exists() else 0, 0

    def check(self, records: int) -> None:
        """LogError if the log did not grow by whole lines since `records` was less.

        Parameters
        ----------
        records : int
            How many should have been written since the log was opened.
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


def tally(path: Path) -> Tally:
    """Count the records of the log at `path` and find each task's best; a missing file holds nothing."""
    told = Tally()
    if path.is_file():
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if skipped(line):
                    continue
                try:
                    record = parse_record(line, place=f"{path}:{number}")
                except LogError as error:
                    told.bad.append(str(error))
                    continue
                key = (record.workload_key, record.target)
                told.trials[key] = told.trials.get(key, 0) + 1
                held = told.best.get(key)
                if record.measurement.ok and (
                    held is None or record.measurement.seconds < held.measurement.seconds
                ):
                    told.best[key] = record
    return told


def other_target(log: Path, recorded: str, target: str, *, option: str) -> LogError:
    """What to say of a log whose records are of another target than a run's: they would count as its own.

    Parameters
    ----------
    option : str
        Of the command line, that names another log.
    """
    return LogError(
        f"its records are of the target {recorded!r}, and this run is for {target!r}: give another {option}, "
        "or that --target",
        place=str(log),
    )


def is_json(line: bytes, *, place: str = "") -> None:
    """LogError if a line is no JSON: a half of one, or two that were glued together."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise LogError(f"not JSON ({error})", place=place) from None


def broken(path: Path) -> bool:
    """Whether a log has a line at which TVM's reader stops: one that is no JSON."""
    with path.open("rb") as lines:
        for line in lines:
            if not skipped(line):
                try:
                    is_json(line)
                except LogError:
                    return True
    return False


def mend(path: Path, *, check: Callable[..., object] = parse_record) -> list[str]:
    """Make a log safe to read by TVM and to append to.

    TVM's reader stops at the first line it cannot parse, and a run that was killed while writing leaves half
    a line, onto which the next record would be glued. Lines that are no records are moved to ``<log>.bad``;
    empty ones, at which it stops too, go.

    Parameters
    ----------
    path : Path
    check : callable (line, place=)
        Raises LogError for what is no record.

    Returns
    -------
    moved : list of str
        ``file:line: reason`` for each line moved.
    """
    path = path.resolve()  # a link is to lead to the mended file
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
    """Whether TVM's reader passes over a log's line; an empty one too, which it does not."""
    return not line.strip() or line[:1] in (b"#", b" ")
