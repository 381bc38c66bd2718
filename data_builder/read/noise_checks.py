"""The noise checks beside a log: which of its records were taken while the machine was disturbed."""

from __future__ import annotations

import bisect
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson

from data_builder.base.store import write_bytes
from data_builder.read.log_paths import STDIN

FILE = "noise.ndjson"
#: A check this much slower than usual means a disturbance; quiet machines repeat to a few percent.
TOLERANCE = 0.15
#: Checks farther from a record than this, in seconds, say nothing of it.
REACH = 900.0


class Checks:
    """What the noise check of some logs found.

    Parameters
    ----------
    times, seconds : sequence of float
        When each check was made, ascending, and what it took; NaN for one that failed.
    breaks : sequence of float
        Times across which no check says anything of a record.
    tolerance : float
        How much slower than usual a check may be.
    """

    def __init__(
        self,
        times: Sequence[float],
        seconds: Sequence[float],
        *,
        breaks: Sequence[float] = (),
        tolerance: float = TOLERANCE,
    ) -> None:
        known = np.array(seconds, np.float64)
        quiet = known[np.isfinite(known)]
        # Disturbances only ever slow down, so "usual" is near the fast end, but not the luckiest of all.
        self.usual = float(np.quantile(quiet, 0.2)) if quiet.size else float("nan")
        # A break is a neighbour too, one that tells nothing.
        told: list[tuple[float, bool | None]] = [
            *((t, not second <= self.usual * (1 + tolerance)) for t, second in zip(times, seconds)),
            *((t, None) for t in breaks),
        ]
        told.sort(key=lambda one: one[0])
        self.times = [t for t, _ in told]
        self.slow = [slow for _, slow in told]

    @staticmethod
    def read(path: Path, *, tolerance: float = TOLERANCE) -> Checks:
        """Those of a `noise.ndjson`; lines that are none are passed over."""
        found = sorted(_lines(path), key=lambda check: check[0])
        checks = [(t, seconds) for t, seconds in found if seconds is not None]
        return Checks(
            [t for t, _ in checks],
            [seconds for _, seconds in checks],
            breaks=[t for t, seconds in found if seconds is None],
            tolerance=tolerance,
        )

    def disturbed(self, timestamp: float) -> bool | None:
        """Whether a record of this time is disturbed: a check next to it was slow. None: none was near.

        TVM cuts a record's time down to the second, so a whole second stands for any moment of it.
        """
        first = bisect.bisect_left(self.times, timestamp)
        last = bisect.bisect_left(self.times, timestamp + (timestamp % 1 == 0))
        near = [
            slow
            for index in range(first - 1, last + 1)
            if 0 <= index < len(self.times)
            and abs(self.times[index] - timestamp) <= REACH
            and (slow := self.slow[index]) is not None
        ]
        return any(near) if near else None


def _lines(path: Path) -> Iterator[tuple[float, float | None]]:
    """When each check was made and what it took, NaN for one that failed; None for a break."""
    with open(path, "rb") as stream:
        for line in stream:
            try:
                check = orjson.loads(line)
                t = float(check["t"])
                if check.get("break") is True:
                    yield t, None
                    continue
                seconds = check["seconds"]
                yield t, float("nan") if seconds is None else float(seconds)
            except (ValueError, TypeError, KeyError):
                continue


def carry(path: Path, out: Path, *, now: float) -> None:
    """Copy the checks of some logs to a folder in which some of their records are timed anew from `now` on.

    What a folder holds already stays. The new records are of another time, perhaps of another machine, and a
    break keeps the old checks from them.
    """
    place = out / FILE
    held = [line for file in (place, path) if file.is_file() for line in file.read_bytes().splitlines()]
    # TVM cuts a record's time down to the second: it is to come after the break all the same.
    parted = orjson.dumps({"t": math.floor(now) - 0.5, "break": True})
    write_bytes(place, b"".join(line + b"\n" for line in dict.fromkeys([*held, parted])))


def beside(log: str, *, base: Path | None = None) -> Path | None:
    """The file of the checks made beside a log: in its folder or the one above; None where there is none.

    Parameters
    ----------
    log : str
        As a dataset names it: a path, or `archive!member`.
    base : Path, optional
        Where a path that is not whole begins; by default here.
    """
    if log.partition("!")[0] == STDIN:
        return None
    folder = _file_of(os.path.abspath(os.path.join(base or "", log))).parent
    return next((place / FILE for place in (folder, folder.parent) if (place / FILE).is_file()), None)


def _file_of(log: str) -> Path:
    """The file that a log is, or is a member of: the longest part before a "!" that is one."""
    parts = log.split("!")
    names = ("!".join(parts[:count]) for count in range(len(parts), 0, -1))
    return Path(next((name for name in names if os.path.isfile(name)), log))


def checks_of(log: str, *, base: Path | None = None) -> Checks | None:
    """The checks made `beside` a log; None where there were none."""
    path = beside(log, base=base)
    return None if path is None else Checks.read(path)
