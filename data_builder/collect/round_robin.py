"""Tasks that are measured a batch at a time, the one with the fewest records first; for both schedulers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from wmsched.base.errors import EnvironmentProblem, WmschedError
from wmsched.base.interrupt import Interrupt

#: What a task is left out for, and the others go on: ours, and what TVM raises for a program or a schedule.
REFUSALS = (WmschedError, RuntimeError, ValueError, TypeError)


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


class Interruptible:
    """A measurer whose results count no longer once Ctrl-C was pressed: it reaches the programs too, and what
    it stopped is no failed schedule."""

    def __init__(self, measurer: Any, interrupt: Interrupt) -> None:
        self._measurer, self._interrupt = measurer, interrupt

    def measure(self, *what: Any) -> Iterator[Any]:
        """As the measurer's; KeyboardInterrupt in place of what comes after a press."""
        for found in self._measurer.measure(*what):
            if self._interrupt.pressed:
                raise KeyboardInterrupt
            yield found


def take_turns(
    turns: Sequence[T],
    take: Callable[[T, Interrupt], tuple[int, int]],
    left_out: Callable[[T, Exception], None],
    *,
    refusals: tuple[type[Exception], ...],
    minutes: float,
    start: float,
    watch: Steps,
) -> dict[str, int]:
    """Measure until each task has its records, or time is up.

    Parameters
    ----------
    take : callable (turn, interrupt)
        Measures a batch (by an `Interruptible`); how many were measured, and how many of these failed.
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
    done = sum(turn.count for turn in turns)
    watch.start("measuring", done + sum(turn.wants for turn in turns), done)
    with Interrupt() as interrupt:
        while True:
            waiting = [turn for turn in turns if turn.wants]
            if not waiting or (minutes and time.monotonic() - start > minutes * 60):
                break
            turn = min(waiting, key=lambda turn: turn.count)
            try:
                measured, failed = take(turn, interrupt)
            except EnvironmentProblem:
                raise  # it is none of this task's, and the next would meet it as well
            except refusals as error:
                if interrupt.pressed:
                    raise KeyboardInterrupt from error
                turn.exhausted = True
                left_out(turn, error)
                continue
            if interrupt.pressed:
                raise KeyboardInterrupt
            counts["measured"] += measured
            counts["failed"] += failed
    counts["records"] = sum(turn.count for turn in turns)
    counts["unfinished"] = sum(turn.exhausted or turn.wants > 0 for turn in turns)
    return counts
