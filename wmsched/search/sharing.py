"""How a model's trials are shared among its tasks: by MetaSchedule's gradients, within bounds.

A task's latency may be wrong by any factor after a disturbed measurement. Two bounds keep one number from
taking a search: what the machine can do at most and at least, and a task's share of the trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

GRADIENT_ALPHA, GRADIENT_WINDOW = 0.2, 3  # MetaSchedule's weight of the last rounds' gain, and their number
MAX_FAILURES_BEFORE_GRADIENT = 16  # then a task without success has gradient 0 and runs last
MAX_SHARE = 1 / 3  # of a model's trials, for a task that has less than that share of the model's time


@dataclass(kw_only=True)
class Progress:
    """Measurements of a task.

    Parameters
    ----------
    floor, ceiling : float
        Bounds of a plausible time in seconds (`wmsched.measure.roofline`).
    times : list of float
        Seconds of each trial in order; NaN for a failed one.
    ends : list of int
        Number of trials after each round.
    """

    trials: int = 0
    failed: int = 0
    best: float = math.inf  # seconds
    rounds: list[float] = field(default_factory=list)  # the best after each round
    finished: bool = False
    floor: float = 0.0
    ceiling: float = math.inf
    times: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    weight = 1  # how often the model calls it; a subclass has a field

    def take(self, seconds: float) -> None:
        """Count a measurement; NaN for a failed one."""
        self.trials += 1
        self.failed += math.isnan(seconds)
        self.times.append(seconds)
        self.best = min(self.best, seconds if seconds > 0 else math.inf)

    def end_round(self) -> None:
        """Keep the best time so far as a round's."""
        self.rounds.append(self.best)
        self.ends.append(len(self.times))

    def correct(self, factors: Mapping[int, float]) -> None:
        """Multiply the times of trials, by their numbers from 0 on, and find the best of each round again."""
        for trial, factor in factors.items():
            self.times[trial] *= factor
        best, lowest = math.inf, [math.inf]
        for seconds in self.times:
            best = min(best, seconds if seconds > 0 else math.inf)
            lowest.append(best)
        self.best = best
        self.rounds = [lowest[end] for end in self.ends]

    @property
    def plausible(self) -> float:
        """The best time, within what the machine can do at most and at least."""
        return min(max(self.best, self.floor), self.ceiling) if math.isfinite(self.best) else self.best

    @property
    def gradient(self) -> float:
        """Seconds of the whole model that another round may save, by MetaSchedule's estimate."""
        if not self.rounds or not math.isfinite(self.best):
            return 0.0
        n = len(self.rounds)
        before = self.rounds[n - 1 - GRADIENT_WINDOW] if n > GRADIENT_WINDOW else math.inf
        gain = 0.0
        if math.isfinite(before):
            gain = max(0.0, min(before, self.ceiling) - self.plausible) / GRADIENT_WINDOW
        return self.weight * (GRADIENT_ALPHA * gain + (1 - GRADIENT_ALPHA) * self.plausible / n)


Some = TypeVar("Some", bound=Progress)


def next_task(tasks: Sequence[Some], size: int, planned: float = math.inf) -> Some | None:
    """Return the first task without a round or with failures only, else that of largest gradient.

    A task above `MAX_SHARE` of the trials waits for the others, unless it has that share of the model's time.

    Parameters
    ----------
    size : int
        Trials of a round.
    planned : float
        Trials of the whole search; infinite where only time ends it: then of those so far.
    """
    alive = [task for task in tasks if not task.finished]
    fresh = [task for task in alive if not task.rounds]
    fresh = fresh or [
        task for task in alive if task.trials < MAX_FAILURES_BEFORE_GRADIENT and not math.isfinite(task.best)
    ]
    if fresh:
        return fresh[0]
    done = sum(task.trials for task in tasks)
    most = MAX_SHARE * (planned if math.isfinite(planned) else done + size)
    within = [task for task in alive if task.trials + size <= most or time_share(task, tasks) >= MAX_SHARE]
    return max(within or alive, key=urgency, default=None)


def time_share(task: Progress, tasks: Sequence[Progress]) -> float:
    """Return a task's share of the model's time, by the plausible times so far; NaN without any."""
    whole = sum(one.weight * one.plausible for one in tasks if math.isfinite(one.plausible))
    return task.weight * task.plausible / whole if whole else math.nan


def urgency(task: Progress) -> tuple[float, int]:
    """Sort key: the gradient, then the fewest rounds."""
    return task.gradient, -len(task.rounds)
