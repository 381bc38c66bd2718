"""Schedules that a search of several shapes begins with: the best ones of the nearest function.

One model with several shapes has each function once for each shape. Two such functions differ in extents
alone, and a good schedule of one is mostly a good schedule of the other with adapted tiles
(`wmsched.search.transfer`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wmsched.metaschedule.tasks import Task
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.schedules.database import mean, records_of
from wmsched.search.transfer import distance, erased

__all__ = ["Neighbours"]

SEEDS_A_TASK = 2  # schedules of the nearest measured function


class Neighbours:
    """Tasks of a model's shapes, and what the database has of each.

    >>> neighbours = Neighbours(tasks, lambda: database)
    >>> traces = neighbours(tasks[0].mod)

    Parameters
    ----------
    tasks : sequence of Task
    database : callable () -> Database
    count : int
        Traces that are returned at most.
    """

    def __init__(self, tasks: Sequence[Task], database: Callable[[], Any], count: int = SEEDS_A_TASK) -> None:
        self.database, self.count = database, count
        self.known = [(task, *erased(task.mod.script())) for task in tasks]

    def groups(self) -> list[list[int]]:
        """Return the places of tasks that differ in extents alone, group by group, in their order."""
        found: dict[str, list[int]] = {}
        for place, (_, text, _) in enumerate(self.known):
            found.setdefault(text, []).append(place)
        return list(found.values())

    def __call__(self, mod: Any) -> list[Any]:
        """Return the traces, as JSON, of the measured function nearest to one; [] where none is like it."""
        text, extents = erased(mod.script())
        near = sorted(
            (
                (distance(extents, others), place)
                for place, (task, other, others) in enumerate(self.known)
                if other == text and others != extents
            )
        )
        for _, place in near:
            own = self._measured(self.known[place][0].mod)
            if own:
                return [trace_json(record.trace) for record in own[: self.count]]
        return []

    def _measured(self, mod: Any) -> list[Any]:
        """Return the records of a function that ran, the fastest first."""
        database = self.database()
        if not database.has_workload(mod):
            return []
        records = records_of(database, database.commit_workload(mod))
        timed = [(mean([float(x) for x in one.run_secs or ()]), k) for k, one in enumerate(records)]
        return [records[k] for seconds, k in sorted(pair for pair in timed if pair[0] > 0)]
