"""Programs timed beside a reference on a processor whose speed comes and goes, made up; no TVM."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from machines import Machine

from wmsched.measure.reference import (
    CALLS,
    MAX_REFERENCE_SECONDS,
    MAX_RETRIES,
    Lost,
    Reference,
    calls,
    settled,
)


def test_a_cost_is_as_at_full_speed_whatever_the_speed() -> None:
    machine = Machine(1.0, 1.0, 1.0, 1.0, 1.7)
    reference = Reference(machine.clock(2e-3), 2e-3)
    for _ in range(2):
        reference.begin()
        costs, slow = reference.beside(lambda: ((machine.take(1e-3), machine.take(3e-3)), True))
        assert costs == pytest.approx((1e-3, 3e-3)) and slow


def test_the_time_after_one_place_is_that_before_the_next() -> None:
    machine = Machine(1.0)
    reference = Reference(machine.clock(2e-3), 2e-3)
    for _ in range(2):
        reference.begin()
        before = machine.timings
        for _ in range(3):
            reference.beside(lambda: ((machine.take(1e-3),), False))
        assert machine.timings - before == 4 + 3


def test_a_timing_amid_which_the_speed_changed_is_repeated() -> None:
    # reference, program, reference: it becomes slow before the program; then, after a pause, all are
    machine = Machine(1.0, 1.7, 1.7, 1.7, 1.7)
    reference = Reference(machine.clock(2e-3), 2e-3)
    reference.begin()
    assert reference.beside(lambda: ((machine.take(1e-3),), False))[0] == pytest.approx((1e-3,))
    assert machine.timings == 6


def test_a_speed_that_never_stays_ends_the_repeating() -> None:
    slow = [1.0, 1.7] * 20
    machine = Machine(*slow)
    reference = Reference(machine.clock(2e-3), 2e-3)
    reference.begin()
    asked = []
    for _ in range(3):
        reference.beside(lambda: (asked.append(1), ((machine.take(1e-3),), False))[1])
    assert len(asked) <= 3 + MAX_RETRIES


def test_a_timing_amid_which_the_speed_changed_each_time_is_no_better_than_it_can_be() -> None:
    # fast before the program and 1.7 times slower after it, or the other way round: it had one of the speeds
    def cost(machine: Machine) -> float:
        reference = Reference(machine.clock(2e-3), 2e-3)
        reference._left = 0
        ((found,), _) = reference.beside(lambda: ((machine.take(1e-3),), False))
        return found

    for spells in ([1.0, 1.0, 1.7], [1.7, 1.7, 1.0], [1.7, 1.0, 1.0], [1.0, 1.7, 1.7]):
        assert cost(Machine(*spells)) >= 1e-3 * (1 - 1e-9)


def test_two_spells_are_told_from_two_programs() -> None:
    """What a search sees: of programs 3 % apart the faster wins beside a reference, else by chance."""
    luck = random.Random(4)
    right = {"paired": 0, "alone": 0}
    for _ in range(200):
        times = {}
        for name, seconds in (("faster", 1.00e-3), ("slower", 1.03e-3)):
            slow = luck.choice((1.0, 1.6))
            machine = Machine(slow)
            reference = Reference(machine.clock(2e-3), 2e-3)
            reference.begin()
            (cost,), _ = reference.beside(lambda s=seconds, m=machine: ((m.take(s),), False))
            times[name] = cost, machine.take(seconds)
        right["paired"] += times["faster"][0] < times["slower"][0]
        right["alone"] += times["faster"][1] < times["slower"][1]
    assert right["paired"] == 200
    assert right["alone"] < 170


def test_a_failing_reference_is_no_fault_of_the_program() -> None:
    def broken(count: int) -> tuple[float, ...]:
        raise RuntimeError("gone")

    with pytest.raises(Lost, match="RuntimeError: gone"):
        Reference(broken, 1e-3).beside(lambda: ((1e-3,), False))

    def program() -> tuple[tuple[float, ...], bool]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Reference(lambda count: (1e-3,), 1e-3).beside(program)


def test_fewer_calls_of_a_slow_reference() -> None:
    assert [calls(seconds) for seconds in (1e-6, 1e-3, 4e-3, 1.0)] == [CALLS, CALLS, 2, 1]


def test_a_first_reference_timed_in_a_slow_spell_has_its_time_at_full_speed(tmp_path: Path) -> None:
    (tmp_path / "pulse.json").write_text("1e-4")
    machine = Machine(1.6)
    reference = Reference.first(machine.clock(2e-3), machine.pulse(tmp_path))
    assert reference is not None and reference.base == pytest.approx(2e-3) and reference.best == math.inf
    for seconds in (2 * MAX_REFERENCE_SECONDS, 0.0):
        assert Reference.first(Machine(1.0).clock(seconds), machine.pulse(tmp_path)) is None


def test_what_the_first_calls_take_does_not_count() -> None:
    """A reference's, on a Zen 5, beside others and by itself."""
    beside = [158e-6, 111e-6, 88e-6, 83e-6, 79e-6, 78e-6, 78e-6, 77e-6, 78e-6, 77e-6]
    assert settled(beside) == 78e-6 == settled(beside[5:] * 2)
    assert Reference(lambda count: beside[:count], 78e-6).now() == 78e-6
    assert settled([3e-3]) == 3e-3 and settled([9e-3, 2e-3]) == 2e-3
