"""From lines of first choices to ratios over the best schedule known, and their table; no TVM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.construct.variants import TODAY, VARIANTS
from benchmarks.outcomes import ratios as stats
from benchmarks.outcomes.marks import Marks
from benchmarks.outcomes.tables import Table

KIND = "first_choice"
PAGE = "docs/explanation/construction.md"
MARKS = Marks("<!-- construct:begin -->", "<!-- construct:end -->")
NOT_YET = "Not measured yet: `make bench-construct`."
FIRST_FEW = (4, 8, 16)  # of the model's order: what measuring so many would give
FAR = 1.3  # over the best known: such tasks are named

Line = dict[str, Any]


def last_lines(lines: Sequence[Line]) -> dict[str, Line]:
    """The last line of each task."""
    return {line["task"]: line for line in lines if line["kind"] == KIND}


def over_best(lines: Sequence[Line], name: str) -> dict[str, float]:
    """By task: a variant's first choice over the fastest schedule timed; without tasks where it has none."""
    found = {}
    for task, line in last_lines(lines).items():
        number = line["variants"].get(name, {}).get("schedule")
        if number is not None:
            found[task] = line["seconds"][str(number)] / min(line["seconds"].values())
    return found


def first_few_over_best(lines: Sequence[Line], count: int) -> dict[str, float]:
    """By task: the fastest of the model's first few schedules over the fastest timed."""
    found = {}
    for task, line in last_lines(lines).items():
        first = [line["seconds"][str(number)] for number in line["pool"][:count]]
        if first:
            found[task] = min(first) / min(line["seconds"].values())
    return found


def core_seconds(lines: Sequence[Line], name: str) -> float:
    """Mean core seconds of a function, its design space's included; NaN without a line."""
    spent = [
        line["variants"][name]["core_seconds"]
        for line in last_lines(lines).values()
        if name in line["variants"]
    ]
    return float(np.mean(spent)) if spent else math.nan


def summary(found: dict[str, float]) -> tuple[float, float, float, float, float]:
    """Geometric mean, the ends of its 95 % interval, 90th percentile and maximum of some ratios."""
    low, high = stats.confidence({task: [value] for task, value in found.items()})
    values = list(found.values())
    return (
        stats.geometric_mean(values), low, high, float(np.quantile(values, 0.9)), max(values)
    )  # fmt: skip


def table(lines: Sequence[Line]) -> Table:
    """A row a variant, and what measuring the model's first few would give."""
    tasks, rows = len(last_lines(lines)), []
    for name, variant in VARIANTS.items():
        found = over_best(lines, name)
        if found:
            rows.append([variant.title, *_cells(found, tasks), f"{core_seconds(lines, name):.2f}"])
    for count in FIRST_FEW:
        found = first_few_over_best(lines, count)
        if found:
            rows.append([f"fastest of the model's first {count}, measured", *_cells(found, tasks), ""])
    head = ["traversal and choice", "over the best known", "95 %", "90th percentile", "maximum"]
    return Table(title="", head=[*head, "core seconds a function"], rows=rows)


def _cells(found: dict[str, float], tasks: int) -> list[str]:
    mean, low, high, ninth, most = summary(found)
    short = f" ({len(found)} of {tasks})" if len(found) < tasks else ""
    return [f"**{mean:.2f}**{short}", f"{low:.2f} to {high:.2f}", f"{ninth:.2f}", f"{most:.2f}"]


def block(lines: Sequence[Line], place: str) -> str:
    """The page's table, and what it is of."""
    last = last_lines(lines)
    if not last:
        return NOT_YET
    machines = sorted({f"{line['cpu']}, {line['cores']} cores" for line in last.values()})
    rounds = sorted({str(line["rounds"]) for line in last.values()})
    spaces = float(np.mean([line["space_core_seconds"] for line in last.values()]))
    far = sorted(over_best(lines, TODAY).items(), key=lambda one: -one[1])
    named = ", ".join(f"{task} {value:.2f}" for task, value in far if value > FAR)
    left = [task for task, line in last.items() if line["tvm_searches"]]
    theirs = f"TVM's own search finds the schedules of {', '.join(left)}.\n" if left else ""
    note = (
        f"{len(last)} tasks; {'; '.join(machines)}; medians of {' or '.join(rounds)} turns. The best known\n"
        f"is the fastest of all schedules that were timed for the task. A design space alone takes\n"
        f"{spaces:.2f} core seconds, which every row includes. Above {FAR} with today's: {named or 'none'}.\n"
        f"{theirs}Printed by `python -m benchmarks.construct --out {place} --print`."
    )
    return table(lines).markdown().strip() + "\n\n" + note
