"""Ctrl-C while schedules are measured: what it stopped is no failure of theirs."""

from __future__ import annotations

import os
import signal
import time

import pytest

from data_builder.collect.round_robin import Interruptible, take_turns


class Told:
    def start(self, what, total, done) -> None:
        pass


class Turn:
    """Wants six; a batch has three."""

    exhausted = False

    def __init__(self) -> None:
        self.records: list[float] = []

    @property
    def count(self) -> int:
        return len(self.records)

    @property
    def wants(self) -> int:
        return 0 if self.exhausted else 6 - self.count

    def take(self, measurer, interrupt) -> tuple[int, int]:
        for seconds in Interruptible(measurer, interrupt).measure(3):
            self.records.append(seconds)
        return 3, 0


class Swallowing:
    """Presses Ctrl-C at one program, and reports it as a failure, as TVM's callbacks do."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def measure(self, count):
        for _ in range(count):
            self.seen += 1
            try:
                if self.seen == self.at:
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(1)
                yield 1e-3
            except KeyboardInterrupt:
                yield 1e10


def collect(turn, measurer, take=None):
    return take_turns(
        [turn],
        take or (lambda turn, interrupt: turn.take(measurer, interrupt)),
        lambda turn, error: None,
        refusals=(RuntimeError,),
        minutes=0.0,
        start=time.monotonic(),
        watch=Told(),
    )


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_what_it_stopped_is_not_kept(at) -> None:
    turn = Turn()
    with pytest.raises(KeyboardInterrupt):
        collect(turn, Swallowing(at))
    assert turn.records == [1e-3] * (at - 1)


def test_undisturbed_a_task_has_all_it_wants() -> None:
    turn = Turn()
    counts = collect(turn, Swallowing(0))
    assert turn.records == [1e-3] * 6 and counts["measured"] == 6


def test_a_press_that_became_another_error_leaves_no_task_out() -> None:
    turn = Turn()

    def take(turn, interrupt):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt as error:
            raise RuntimeError("KeyboardInterrupt, TVM says") from error
        return 0, 0

    with pytest.raises(KeyboardInterrupt):
        collect(turn, None, take)
    assert not turn.exhausted
