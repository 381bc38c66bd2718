"""How much of its full speed a processor has, made up but for the beat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from machines import Machine

from wmsched.measure.clock_probe import MAX_WAITS, products


def test_full_speed_is_waited_for_and_kept(tmp_path: Path) -> None:
    naps: list[float] = []
    machine = Machine(*[1.6] * 4, 1.0, *[1.6] * 9, 1.0)
    found = machine.pulse(tmp_path, naps)
    assert found.full == pytest.approx(1e-4)
    napped = len(naps)
    found.wait()  # out of the slow spell
    assert len(naps) > napped and found.speed() == pytest.approx(1.0)
    again = Machine(2.0).pulse(tmp_path, naps)  # another process need not look for it
    assert again.full == pytest.approx(1e-4) and again.speed() == pytest.approx(0.5)
    napped = len(naps)
    again.wait()
    assert len(naps) - napped == MAX_WAITS


def test_a_neighbour_that_stays_is_not_waited_for_each_time(tmp_path: Path) -> None:
    naps: list[float] = []
    found = Machine(2.0).pulse(tmp_path, naps)
    fast, slow = found.full, found.full / 2
    naps.clear()

    def pauses(full: float) -> int:
        found.full = full
        before = len(naps)
        found.wait()
        return len(naps) - before

    expected = (MAX_WAITS, MAX_WAITS // 2, MAX_WAITS // 4, MAX_WAITS // 8, 1, 1)
    assert tuple(pauses(slow) for _ in expected) == expected
    assert pauses(fast) == 0 and pauses(slow) == 2  # since there was full speed, longer again
    for _ in range(9):
        assert pauses(fast) == 0
    assert pauses(slow) == MAX_WAITS


def test_a_broken_note_of_full_speed_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "pulse.json").write_text("")
    found = Machine(1.0).pulse(tmp_path)
    assert json.loads((tmp_path / "pulse.json").read_text()) == pytest.approx(found.full)


def test_the_beat_is_real_work() -> None:
    assert 1e-6 < products()() < 1.0
