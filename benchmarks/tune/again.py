"""Second measurement of a task's best schedules, spread over several processes.

A process gets its memory pages once, and the time of some programs depends on them. One schedule of a
depthwise convolution took 189 to 253 us in the rounds of one process and 257 to 386 us in the next, while the
other schedules did not change. The rounds of one process are therefore a single sample; several processes
show what a user may expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tune import child
from benchmarks.tune.remeasure import summary

Entry = dict[str, Any]


def measure(
    module: str, spec: dict[str, Any], *, processes: int, timeout: float, output: Path
) -> dict[str, Any]:
    """Ask `processes` children in turn for a share of ``spec["rounds"]`` each.

    Parameters
    ----------
    module : str
        `benchmarks.tune.remeasure` or its counterpart for MetaSchedule.
    timeout : float
        Seconds for each.
    output : Path
        Where what they print goes; of the last one in the end.

    Returns
    -------
    dict
        What one child answers, with the rounds of all; the failed answer if one fails.
    """
    rounds = int(spec["rounds"])
    parts: list[dict[str, Any]] = []
    shares = [rounds * (k + 1) // processes - rounds * k // processes for k in range(processes)]
    for share in (share for share in shares if share):
        asked = spec | {"rounds": share, "first": sum(part["rounds"] for part in parts)}
        part = child.call(module, asked, timeout=timeout, output=output, steady=True)
        if part["status"] != "ok":
            return part
        parts.append(part)
    entries = [_joined(found) for found in zip(*(part["entries"] for part in parts), strict=True)]
    return parts[0] | {"rounds": rounds, "processes": len(parts), "entries": entries}


def _joined(parts: Sequence[Entry]) -> Entry:
    """One schedule's entry from those of all processes; an error in any of them is the schedule's."""
    wrong = next((part for part in parts if "error" in part), None)
    if wrong is not None:
        return wrong
    seconds = [value for part in parts for value in part["seconds"]]
    return {"seconds": seconds, **summary(seconds)}
