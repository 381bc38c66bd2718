"""Tasks that are measured a batch at a time, the one with the fewest records first; for both schedulers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from wmsched.errors import EnvironmentProblem


class Turn(Protocol):
    """A task: how many records it has, how many more it wants, and whether it has no more to give."""

    exhausted: bool

    @property
    def count(self) -> int: ...

    @property
    def wants(self) -> int: ...


class Steps(Protocol):
    """Who is told how many schedules are measured."""

    def start(self, what: str, total: int, done: int) -> None: ...


T = TypeVar("T", bound=Turn)


def take_turns(
    turns: Sequence[T],
    take: Callable[[T], tuple[int, int]],
    left_out: Callable[[T, Exception], None],
    *,
    refusals: tuple[type[Exception], ...],
    trials: int,
    minutes: float,
    start: float,
    watch: Steps,
) -> dict[str, int]:
    """Measure until each task has its records, or time is up.

    Parameters
    ----------
    take : callable (turn)
        Measures a batch; how many were measured, and how many of these failed.
    left_out : callable (turn, error)
        Told of a task whose turn raised one of `refusals`; it gets no other. An EnvironmentProblem goes on to
        the caller.
    minutes : float
        No batch is begun later than so long after `start` (`time.monotonic()`); 0 for no limit.

    Returns
    -------
    dict
        Counts: `tasks`, `records`, `measured`, `failed` of these, `unfinished` tasks.
    """
    counts = {"tasks": len(turns), "records": 0, "measured": 0, "failed": 0, "unfinished": 0}
    watch.start("measuring", trials * len(turns), sum(min(turn.count, trials) for turn in turns))
    while True:
        waiting = [turn for turn in turns if turn.wants]
        if not waiting or (minutes and time.monotonic() - start > minutes * 60):
            break
        turn = min(waiting, key=lambda turn: turn.count)
        try:
            measured, failed = take(turn)
        except EnvironmentProblem:
            raise  # it is none of this task's, and the next would meet it as well
        except refusals as error:
            turn.exhausted = True
            left_out(turn, error)
            continue
        counts["measured"] += measured
        counts["failed"] += failed
    counts["records"] = sum(turn.count for turn in turns)
    counts["unfinished"] = sum(turn.count < trials for turn in turns)
    return counts
