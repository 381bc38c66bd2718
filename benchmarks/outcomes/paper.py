"""The paper's figures, transcribed from its text into `paper.json` with the number of each table or figure.

Only what the paper states in words or tables is here: what could be read off its plots alone is not.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import suites

PATH = Path(__file__).with_name("paper.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One mean speedup of the paper.

    Attributes
    ----------
    where, platform : str
        The table or figure, and "CPU" or "GPU".
    group : str
        "subgraphs" (the 22 representatives) or "models" (weighted latency, Eq 13).
    baseline : str
        "ansor" or "tenset".
    baseline_budget, ours_budget : int
        Trials of each.
    speedup : float
        Geometric mean of baseline / ours.
    better_on : int or None
        On how many of the 22 subgraphs, where the paper says so.
    """

    where: str
    platform: str
    group: str
    baseline: str
    baseline_budget: int
    ours_budget: int
    speedup: float
    better_on: int | None = None

    @property
    def what(self) -> str:
        """Such as "ours-16 over ansor-64, subgraphs"."""
        kind = "weighted model latency" if self.group == "models" else "representative subgraphs"
        return f"{kind}: ours-{self.ours_budget} over {self.baseline}-{self.baseline_budget}"


@functools.cache
def figures() -> dict[str, Any]:
    """Everything in `paper.json`."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def claims() -> list[Claim]:
    """The mean speedups at given budgets, the CPU's first."""
    return [Claim(**entry) for entry in figures()["claims"]]


def table3(kind: str, baseline: str, budget: int) -> float | None:
    """Table 3's (GPU) speedup of a representative type over "ansor" or "tenset"; None if it has none."""
    for row in figures()["table3"]:
        if row["type"] == kind:
            return row.get(baseline, {}).get(str(budget))
    return None


def task_name(kind: str) -> str:
    """The paper's name of a type's representative, such as "resnet50 task6"; "" for another type."""
    entry = suites.BY_TYPE.get(kind)
    return f"{entry.model} {entry.paper_task}" if entry else ""
