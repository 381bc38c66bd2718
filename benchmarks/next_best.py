"""The schedules of a run's log, the best first: what stands in for one that computes something else.

No search looks at results, so the schedule that it found fastest may leave work out. A user who looks takes
the fastest that does not.
"""

from __future__ import annotations

import math
from pathlib import Path

from wmsched.codecs.ansor import parse_record
from wmsched.errors import LogError

WRONG = "it computes something else"  # how the second measurement says so


def ranked(log: Path) -> list[str]:
    """The log's lines whose programs ran, by their time in the search; [] where there is no such log."""
    found: list[tuple[float, int, str]] = []
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    for number, line in enumerate(lines):
        try:
            seconds = parse_record(line).measurement.seconds
        except LogError:
            continue
        if math.isfinite(seconds):
            found.append((seconds, number, line.strip()))
    return [line for _, _, line in sorted(found)]


def after(log: Path, tried: list[str]) -> str | None:
    """The best of a log that is none of those that were tried; None where there is no other."""
    return next((line for line in ranked(log) if line not in tried), None)
