"""Speedups by number of trials, for runs whose programs were timed on another machine.

They use first measurements in the order of the proposals: a cost model's best choices first, or the search's
order if the model has learnt nothing.
"""

from __future__ import annotations

from benchmarks.outcomes import ratios as stats
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.outcomes.tables import Table, interval, mean, wins

TRIALS = (1, 4, 16, 64)
EARLY = 16


def tables(data: Outcomes) -> list[Table]:
    """The speedup after so many trials of the usual largest budget; [] without runs timed elsewhere."""
    usual = [setting for setting in data.settings if setting.usual]
    rows: list[list[str]] = []
    for ours, base in data.pairs() if usual else []:
        setting = usual[-1]
        curves = stats.paired_curves(data, ours, base, setting)
        if not curves or not _elsewhere(data, ours, setting):
            continue
        first = max(points[0][0] for _, *both in curves for points in both)  # earlier candidates failed
        places = [*((n, n) for n in TRIALS if n <= setting.budget), (EARLY, setting.budget)]
        for mine, theirs in [both for both in places if min(both) >= first]:
            found = stats.ratios_at(curves, mine, baseline_place=theirs, axis=0)
            rows.append([f"{ours}, {mine}, over {base}, {theirs}", mean(found), interval(found), wins(found)])
    head = ["after so many trials", "speedup", "95 % interval", "faster on"]
    return [Table(title=f"Along the {usual[-1]}", head=head, rows=rows)] if rows else []


def _elsewhere(data: Outcomes, method: str, setting: Setting) -> bool:
    found = [outcome for task in data.tasks for outcome in data.of(task, method, setting).values()]
    return all(outcome.line.get("deferred") for outcome in found)
