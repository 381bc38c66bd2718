"""Runtimes called in turns, each in a process of its own."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.runtimes.busy import REST, Child


def in_turns(places: Mapping[str, Path], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of a call of each tuned folder, by its name: the median of each turn."""
    children = {name: Child("constructed", path, sys.executable) for name, path in places.items()}
    try:
        return turns(children, rounds, seconds)
    finally:
        for child in children.values():
            child.close()


def turns(children: Mapping[str, Child], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Median microseconds of a call in each of so many turns of every child, by its name."""
    times: dict[str, list[float]] = {name: [] for name in children}
    for _ in range(rounds):
        for name, child in children.items():
            times[name].append(statistics.median(child.latencies(seconds)))
            time.sleep(REST)
    return times
