"""What keeps a function of a model from being faster: arithmetic, memory, launches, or its own code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wmsched.measure.roofline import Roofline
from wmsched.report.profiler import Profile, Row

__all__ = ["Limit", "WAITS", "limits_of", "spent_on"]

COMPUTE, MEMORY, LAUNCH, CODE, UNKNOWN = "compute", "memory", "launch", "code", "unknown"
WAITS = {
    COMPUTE: "arithmetic: at half of the machine's peak or more; fewer operations would help",
    MEMORY: "memory: at half of what the memory delivers or more, or much quicker from the caches",
    LAUNCH: "the handing over of parallel loops to threads",
    CODE: "its own instructions: arithmetic and memory are below half of their peaks; schedules may help",
    UNKNOWN: "not known: its operations or this machine's peak are not",
}
HALF = 0.5  # of a function's time, from which on one of its limits explains it
WARMER = 0.3  # of a function's time, which caches would save, from which on it waits for memory


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The least seconds that a function's calls in one run of a model can take here, by each of three limits.

    Parameters
    ----------
    compute, memory, launch : float
        NaN where it is not known.
    waits : str
        Which of `WAITS` explains its time best.
    """

    compute: float
    memory: float
    launch: float
    waits: str

    @property
    def seconds(self) -> float:
        """The least in all: arithmetic and memory overlap, a launch does not."""
        known = [one for one in (self.compute, self.memory) if math.isfinite(one)]
        if not known:
            return math.nan
        return max(known) + (self.launch if math.isfinite(self.launch) else 0.0)


def limits_of(profile: Profile, machine: Roofline) -> list[Limit]:
    """The limits of each of a profile's rows.

    A model's weights come from as far as all that a run touches does: it lies between two uses of one.
    What one function hands to the next is where so many bytes have room.
    """
    return [_limit(row, machine, profile.memory) for row in profile.rows]


def _limit(row: Row, machine: Roofline, whole: float) -> Limit:
    bytes_wide = any(shape.startswith(("int8", "uint8")) for shape in row.shapes)
    peak = machine.int8 if bytes_wide and math.isfinite(machine.int8) else machine.gflops
    own = row.weights if math.isfinite(row.weights) else 0.0
    moved = row.bytes - own
    memory = moved / (machine.gbs(moved / row.calls) * 1e9)
    if own:
        memory += own / (machine.gbs(whole) * 1e9)
    handover = machine.handover if math.isfinite(machine.handover) else 0.0
    found = (row.flops / (peak * 1e9), memory, row.shared * handover)
    return Limit(compute=found[0], memory=found[1], launch=found[2], waits=_waits(row, *found))


def _waits(row: Row, compute: float, memory: float, launch: float) -> str:
    parts = {COMPUTE: compute, MEMORY: memory, LAUNCH: launch}
    known = {name: value for name, value in parts.items() if math.isfinite(value)}
    name = max(known, key=known.__getitem__, default=UNKNOWN)
    if known and known[name] >= HALF * row.seconds:
        return name
    if math.isfinite(row.warm) and row.seconds - row.warm >= WARMER * row.seconds:
        return MEMORY
    return CODE if COMPUTE in known and MEMORY in known else UNKNOWN


def spent_on(rows: Sequence[Row], limits: Sequence[Limit]) -> dict[str, float]:
    """Seconds of the functions by what they wait for, the longest first."""
    found: dict[str, float] = {}
    for row, limit in zip(rows, limits, strict=True):
        found[limit.waits] = found.get(limit.waits, 0.0) + row.seconds
    return dict(sorted(found.items(), key=lambda item: -item[1]))
