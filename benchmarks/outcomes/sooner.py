"""Trials and time until our search reaches the baseline's final latency.

Each search times its schedules its own way: the stock script by ten calls on one set of buffers, ours paired
on several. The latencies along a run are therefore scaled by the second measurement of its last schedule over
the run's own time of it.
"""

from __future__ import annotations

from benchmarks.methods import SCRIPT, kin
from benchmarks.outcomes import ratios as stats
from benchmarks.outcomes.outcomes import Outcome, Outcomes, Setting
from benchmarks.outcomes.tables import Table
from benchmarks.plan import DEFAULT_ROUND


def reached(run: Outcome, latency: float) -> stats.Point | None:
    """Where a run's curve first has a schedule of no more than `latency` seconds; None if it never has."""
    scale = run.seconds / run.line["best_seconds"]
    return next((point for point in run.line["curve"] if point[2] * scale <= latency), None)


def tables(data: Outcomes) -> list[Table]:
    """One for each two methods and each budget above `DEFAULT_ROUND`, in which upstream learns as it goes."""
    long = [setting for setting in data.settings if setting.usual and setting.budget > DEFAULT_ROUND]
    made = (_table(data, ours, base, setting) for ours, base in data.pairs() for setting in long)
    return [table for table in made if table is not None]


def _table(data: Outcomes, ours: str, base: str, setting: Setting) -> Table | None:
    rows: list[list[str]] = []
    sooner: dict[str, list[float]] = {}
    for task, mine, theirs in data.both(ours, setting, base, setting):
        if mine.kept_workers != theirs.kept_workers and kin(ours) != SCRIPT:
            continue  # of a script how its processes are kept is a part; otherwise seconds mean another thing
        if mine.instead or theirs.instead:
            continue  # the curve ends at a program that computes something else
        trials, seconds, _ = min(theirs.line["curve"], key=lambda point: point[2])  # the first of the least
        row = [task, f"{1e3 * theirs.seconds:.4g}", str(trials), f"{seconds:.0f}"]
        us = reached(mine, theirs.seconds)
        if us is None:
            row += [f"not in {setting.budget}", "", ""]
        else:
            sooner.setdefault(task, []).append(seconds / us[1])
            row += [str(us[0]), f"{us[1]:.0f}", f"{sooner[task][-1]:.1f}"]
        rows.append(row)
    if not rows:
        return None
    if sooner:
        mean = stats.geometric_mean(stats.by_task(sooner))
        there = sum(map(len, sooner.values()))
        rows.append([f"**geometric mean of {there} of {len(rows)}**", *[""] * 5, f"**{mean:.1f}**"])
    head = ["task", f"{base}, ms", "trials", "seconds", f"{ours}: trials", "seconds", "times sooner"]
    note = "When each run first had a schedule as fast as the baseline's last; latencies as measured again."
    return Table(title=f"How soon {ours} is where {base} ends, {setting}", head=head, rows=rows, note=note)
