"""What a folder's search did: its curve, its tasks, and what it left as it was. Needs no TVM."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wmsched.schedules.database import RECORDS, mean

__all__ = ["curve", "left_alone", "read_records"]

POINTS = 400  # of a curve, at most


def read_records(folder: Path) -> list[tuple[int, float]]:
    """Return each record's program, by its number, and its seconds, NaN of a failed one."""
    found = []
    try:
        with (folder / RECORDS).open("rb") as stream:
            for line in stream:
                program, (_, seconds, *_) = json.loads(line)
                found.append((int(program), mean(seconds or ())))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError):  # a line that is being written: what is before it counts
        pass
    return found


def curve(
    records: Sequence[tuple[int, float]], tasks: Sequence[Mapping[str, Any]]
) -> list[tuple[int, float]]:
    """Return the model's weighted latency after each trial that made it less: (trials, seconds).

    It begins when every measured function has a time. What is summed are times of functions by themselves,
    each as often as the model calls it.
    """
    weights = _weights(records, tasks)
    best: dict[int, float] = {}
    found: list[tuple[int, float]] = []
    for number, (program, seconds) in enumerate(records, start=1):
        if program in weights and seconds < best.get(program, math.inf):
            best[program] = seconds
            if len(best) == len(weights):
                found.append((number, sum(weights[one] * value for one, value in best.items())))
    if found and found[-1][0] < len(records):
        found.append((len(records), found[-1][1]))
    if len(found) > POINTS:
        step = (len(found) - 1) / (POINTS - 1)
        found = [found[round(k * step)] for k in range(POINTS)]
    return found


def _weights(records: Sequence[tuple[int, float]], tasks: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """How often the model calls each program: of the task that has its best time, and as many trials."""
    times: dict[int, list[float]] = {}
    for program, seconds in records:
        times.setdefault(program, []).append(seconds)
    known = {
        (float(task["seconds"]), int(task["trials"])): int(task["weight"])
        for task in tasks
        if task.get("seconds") is not None
    }
    found = {}
    for program, each in times.items():
        good = [seconds for seconds in each if math.isfinite(seconds)]
        if good and (weight := known.get((min(good), len(each)))) is not None:
            found[program] = weight
    return found


def left_alone(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """Functions whose schedule no measurement chose, and why."""
    found = []
    for task in report["tasks"]:
        why = _why(task)
        if why:
            found.append({"name": str(task["name"]), "why": why})
    return found


def _why(task: Mapping[str, Any]) -> str:
    how, trials, failed = task.get("how", "measured"), int(task["trials"]), int(task["failed"])
    if task.get("seconds") is not None:
        return ""
    had = f"all of its {trials} trials failed" if trials and failed == trials else "it had no trial"
    if how == "constructed":
        return f"{had}: it has the schedule that the cost model ranks first"
    if how == "by rule":
        return f"{had}: it has a schedule by rule"
    return f"{had}: it has no schedule"
