"""Silence of worker processes: whether they are slow, or hung.

On a busy machine a worker may wait for a processor longer than its work takes. Its processor time tells the
two apart: a slow one uses some, or wants to, and one that waits for ever sleeps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["LOOK_SECONDS", "Silence"]

LOOK_SECONDS = 1.0  # between two looks at silent workers
MAX_ASLEEP = 60  # looks in a row at which all workers slept and had used no processor time since the last
MAX_BUSY_SECONDS = 300.0  # of processor time of one worker, for one result
ASLEEP = "SIZX"  # Linux's letters for processes that sleep, or have ended

Look = Callable[[int], tuple[float, bool]]
"""Process -> seconds of processor time that it has used, and whether it sleeps."""


def look_at(pid: int) -> tuple[float, bool]:
    """Return a process's seconds of processor time, and whether it sleeps; one that is gone sleeps."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # also of a system without such files
        return 0.0, True
    state, user, system = fields[0], int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK"), state in ASLEEP


class Silence:
    """Silence of some processes, since it was made or since `end`.

    Looks count, not seconds: a process that was stopped together with its workers does not wake up to a
    silence of minutes.

    Parameters
    ----------
    pids : sequence of int
    look : callable (pid), optional
        A test brings its own.
    """

    def __init__(self, pids: Sequence[int], look: Look = look_at) -> None:
        self.pids, self.look = list(pids), look
        self.end()

    def end(self) -> None:
        """Note that one of the processes has said something."""
        self.asleep = 0
        self.first = self.last = [self.look(pid)[0] for pid in self.pids]

    def too_long(self) -> str:
        """Look at the processes; return why they are to be given up, "" where they are not."""
        now = [self.look(pid) for pid in self.pids]
        used = [seconds for seconds, _ in now]
        idle = all(sleeps for _, sleeps in now) and used == self.last
        self.asleep = self.asleep + 1 if idle else 0
        self.last = used
        if self.asleep >= MAX_ASLEEP:
            return f"they slept at {MAX_ASLEEP} looks, one each {LOOK_SECONDS:g} s"
        most = max((b - a for a, b in zip(self.first, used)), default=0.0)
        return f"one has used {most:.0f} s of a processor" if most > MAX_BUSY_SECONDS else ""
