"""Silent workers: a slow one is waited for, and one that sleeps is given up."""

from __future__ import annotations

import multiprocessing
import time

from wmsched.base import silence
from wmsched.base.silence import MAX_ASLEEP, MAX_BUSY_SECONDS, Silence, look_at


def looked(silent: Silence, times: int) -> list[str]:
    return [silent.too_long() for _ in range(times)]


def test_workers_that_wait_for_a_processor_are_waited_for():
    silent = Silence([1, 2], lambda pid: (0.0, pid == 1))  # the second is ready to run, and does not
    assert not any(looked(silent, 10 * MAX_ASLEEP))


def test_a_worker_that_gets_a_little_of_a_processor_is_waited_for():
    used = iter(range(10_000))
    silent = Silence([1], lambda pid: (next(used) / 1000, True))
    assert not any(looked(silent, 10 * MAX_ASLEEP))


def test_workers_that_sleep_are_given_up_and_a_result_begins_anew():
    silent = Silence([1, 2], lambda pid: (7.0, True))
    assert not any(looked(silent, MAX_ASLEEP - 1))
    silent.end()
    found = looked(silent, MAX_ASLEEP)
    assert not any(found[:-1]) and "slept" in found[-1]


def test_a_worker_that_never_ends_is_given_up():
    used = iter([5.0, MAX_BUSY_SECONDS, MAX_BUSY_SECONDS + 6.0])
    silent = Silence([1], lambda pid: (next(used), False))
    assert looked(silent, 2) == ["", f"one has used {MAX_BUSY_SECONDS + 1:.0f} s of a processor"]


def _spin() -> None:
    end = time.process_time() + 60
    while time.process_time() < end:
        pass


def test_processes_are_looked_at(monkeypatch):
    monkeypatch.setattr(silence, "MAX_BUSY_SECONDS", 0.05)
    context = multiprocessing.get_context("fork")
    busy, idle = context.Process(target=_spin, daemon=True), context.Process(target=time.sleep, args=(60,))
    for one in (busy, idle):
        one.start()
    try:
        silent, until = Silence([busy.pid, idle.pid]), time.monotonic() + 30
        while not (why := silent.too_long()) and time.monotonic() < until:
            time.sleep(0.02)
        assert "of a processor" in why
        assert look_at(idle.pid)[1]
    finally:
        for one in (busy, idle):
            one.kill()
            one.join()
    assert look_at(busy.pid) == (0.0, True)
