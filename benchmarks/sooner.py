"""How soon a search of ours has a schedule as fast as the baseline's last, where both were given many trials.

A search says itself how fast its schedules are, and each says it in its own way: stock's script by ten calls
on one set of buffers, ours beside a reference on several. So the latencies along a run are those it noted,
times what its last one came to when all were measured again together, over what the run had noted of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import ratios as stats
from benchmarks.methods import SCRIPT, kin
from benchmarks.outcomes import Outcome, Outcomes, Setting
from benchmarks.plan import DEFAULT_ROUND
from benchmarks.tables import Table


@dataclass(frozen=True, slots=True)
class Reached:
    """After how many trials and seconds a run had a schedule."""

    trials: int
    seconds: float

    @classmethod
    def by(cls, run: Outcome, latency: float) -> Reached | None:
        """When the run first had one of no more than `latency` seconds; None if it never had."""
        scale = run.seconds / run.line["best_seconds"]
        for trials, seconds, noted in run.line["curve"]:
            if noted * scale <= latency * (1 + 1e-9):  # its own last one is reached, whatever was rounded
                return cls(int(trials), float(seconds))
        return None


def tables(data: Outcomes) -> list[Table]:
    """One for each two methods and each budget above `DEFAULT_ROUND`, in which upstream learns as it goes."""
    long = [setting for setting in data.settings if setting.usual and setting.budget > DEFAULT_ROUND]
    made = (_table(data, ours, base, setting) for ours, base in data.pairs() for setting in long)
    return [table for table in made if table is not None]


def _table(data: Outcomes, ours: str, base: str, setting: Setting) -> Table | None:
    rows: list[list[str]] = []
    sooner: dict[str, list[float]] = {}
    count = 0
    for task, mine, theirs in _both(data, ours, base, setting):
        count += 1
        them, us = Reached.by(theirs, theirs.seconds), Reached.by(mine, theirs.seconds)
        row = [task, f"{1e3 * theirs.seconds:.4g}"]
        row += [str(them.trials), f"{them.seconds:.0f}"] if them else ["", ""]
        if us is None:
            row += [f"not in {setting.budget}", "", ""]
        else:
            row += [str(us.trials), f"{us.seconds:.0f}"]
            if them:
                sooner.setdefault(task, []).append(them.seconds / us.seconds)
                row.append(f"{sooner[task][-1]:.1f}")
            else:
                row.append("")
        rows.append(row)
    if not rows:
        return None
    if sooner:
        mean = stats.geometric_mean(stats.by_task(sooner))
        reached = sum(map(len, sooner.values()))
        rows.append([f"**geometric mean of {reached} of {count}**", *[""] * 5, f"**{mean:.1f}**"])
    head = ["task", f"{base}, ms", "trials", "seconds", f"{ours}: trials", "seconds", "times sooner"]
    note = "When each run first had a schedule as fast as the baseline's last; latencies as measured again."
    return Table(title=f"How soon {ours} is where {base} ends, {setting}", head=head, rows=rows, note=note)


def _both(data: Outcomes, ours: str, base: str, setting: Setting) -> Iterator[tuple[str, Outcome, Outcome]]:
    """Task, our run and the baseline's of each task and seed that both have, whose seconds mean the same."""
    for task in data.tasks:
        mine, theirs = data.of(task, ours, setting), data.of(task, base, setting)
        for seed in sorted(mine.keys() & theirs.keys()):
            alike = mine[seed].kept_workers == theirs[seed].kept_workers
            if alike or kin(ours) == SCRIPT:  # of a script how its processes are kept is a part
                yield task, mine[seed], theirs[seed]
