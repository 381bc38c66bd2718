"""Schedules of a run's log, the best first, to replace one that computes wrong results.

No search checks results, so its fastest schedule may leave work out. A user who checks takes the fastest
correct one.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from data_builder.read.databases import parse_line
from wmsched.base.errors import LogError
from wmsched.schedules.steps import parse_record


def ranked(log: Path) -> list[str]:
    """The log's records whose programs ran, by their time in the search; [] where there is no such log.

    A line of AutoScheduler's log is one; in one of MetaSchedule's database it follows the program's number.
    """
    found: list[tuple[float, int, str]] = []
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    for number, line in enumerate(lines):
        try:
            seconds, record = _read(line)
        except (LogError, ValueError):
            continue
        if math.isfinite(seconds):
            found.append((seconds, number, record))
    return [record for _, _, record in sorted(found)]


def _read(line: str) -> tuple[float, str]:
    try:
        return parse_record(line).measurement.seconds, line.strip()
    except LogError:
        return parse_line(line.encode()).measurement.seconds, json.dumps(json.loads(line)[1])


def after(log: Path, tried: list[str]) -> str | None:
    """The best of a log that is none of those that were tried; None where there is no other."""
    keys = set(map(_key, tried))
    return next((record for record in ranked(log) if _key(record) not in keys), None)


def _key(record: str) -> str:
    """Of MetaSchedule's the trace alone: files differ in how they write its target and its times."""
    try:
        read = json.loads(record)
    except ValueError:
        return record
    return json.dumps(read[0]) if isinstance(read, list) else record
