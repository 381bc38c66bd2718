"""Queue of a fleet: work of devices that die, hang and come back is neither lost nor measured twice."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import Counter
from concurrent.futures import wait
from contextlib import closing

import pytest

from wmsched.measure.fleet import MAX_LOSSES, DeviceLost, DeviceRefused, Fleet, NoDevice

SOON = 20.0  # seconds within which everything here must have happened


class Pretended:
    """A device whose work is a number; it dies when its owner says so, before or after the work is done."""

    def __init__(self, name: str, owner: Park) -> None:
        self.name, self.owner, self.closed = name, owner, threading.Event()

    def measure(self, number: int) -> tuple[str, int]:
        fate = self.owner.fate(number)
        if fate == "dies first" or self.closed.is_set():
            raise DeviceLost("it died")
        time.sleep(0.001)
        self.owner.started[number] += 1
        if fate == "dies after":  # the answer never arrives
            raise DeviceLost("it died before it answered")
        if fate == "hangs":  # until the time limit of its connection
            self.closed.wait(0.05)
            raise DeviceLost("no answer in time")
        return self.name, number

    def close(self) -> None:
        self.closed.set()
        self.owner.free.put(self.name)  # it comes back


class Park:
    """Devices behind a pretended tracker."""

    def __init__(self, names: list[str], fates: list[str], *, seed: int = 0, of: int = 200) -> None:
        self.free: queue.Queue[str] = queue.Queue()
        self.names = names
        for name in names:
            self.free.put(name)
        self.started: Counter[int] = Counter()
        self.lock, self.calls = threading.Lock(), 0
        chosen = random.Random(seed).sample(range(of), len(fates))
        self.fates = dict(zip(chosen, fates))  # by the number of the call

    def fate(self, number: int) -> str:
        with self.lock:
            self.calls += 1
            return self.fates.pop(self.calls - 1, "")

    def connect(self, is_stopped):
        while not is_stopped():
            try:
                return Pretended(self.free.get(timeout=0.01), self)
            except queue.Empty:
                continue
        return None

    def fleet(self, told: list[str], **options) -> Fleet[Pretended]:
        parts = {"rest": 0.002, "poll": 0.02, "patience": 0.5} | options
        return Fleet(self.connect, lambda: len(self.names), tell=told.append, **parts)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("devices", [1, 2, 5])
def test_twenty_kills_lose_nothing_and_measure_nothing_twice(seed: int, devices: int) -> None:
    fates = ["dies first"] * 8 + ["dies after"] * 8 + ["hangs"] * 4
    park, told = Park([f"d{k}" for k in range(devices)], fates, seed=seed), list[str]()
    with closing(park.fleet(told)) as fleet:
        futures = [fleet.submit(lambda device, k=k: device.measure(k)) for k in range(200)]
        done, late = wait(futures, timeout=SOON)
        assert not late and len(done) == 200
        assert [future.result()[1] for future in futures] == list(range(200))
    assert not park.fates and park.calls == 220  # each kill cost one call, and no more
    assert sum("is lost" in text for text in told) == 20
    assert sum(tally.lost for tally in fleet.tallies.values()) == 20
    assert sum(tally.done for tally in fleet.tallies.values()) == 200
    repeated = sum(count - 1 for count in park.started.values())
    assert repeated == 12  # only what a device had begun and never answered


def test_work_that_was_lost_comes_before_all_other() -> None:
    park, told, order = Park(["d0"], []), list[str](), list[int]()
    park.fates = {1: "dies first"}

    def work(device: Pretended, number: int) -> None:
        device.measure(number)
        order.append(number)

    with closing(park.fleet(told)) as fleet:
        futures = [fleet.submit(lambda device, k=k: work(device, k)) for k in range(6)]
        wait(futures, timeout=SOON)
    assert order == list(range(6))


def test_work_that_loses_every_device_is_blamed_and_the_rest_goes_on() -> None:
    park, told = Park(["d0", "d1"], []), list[str]()

    def poison(device: Pretended) -> None:
        raise DeviceLost("the machine restarted")

    with closing(park.fleet(told)) as fleet:
        bad, good = fleet.submit(poison), fleet.submit(lambda device: device.measure(1))
        assert good.result(SOON)[1] == 1
        with pytest.raises(DeviceLost, match=f"{MAX_LOSSES} devices were lost at it; the last: the machine"):
            bad.result(SOON)
    assert sum("is lost" in text for text in told) == MAX_LOSSES


def test_an_error_of_the_work_itself_is_its_result_and_costs_no_device() -> None:
    park, told = Park(["d0"], []), list[str]()
    with closing(park.fleet(told)) as fleet:
        failed = fleet.submit(lambda device: [][0])
        with pytest.raises(IndexError):
            failed.result(SOON)
        assert fleet.submit(lambda device: device.measure(3)).result(SOON) == ("d0", 3)
    assert told == []


def test_work_fails_once_no_device_has_been_there_for_the_patience() -> None:
    park, told = Park(["d0"], []), list[str]()
    park.free.get()
    with closing(park.fleet(told, patience=0.1)) as fleet:
        begun = fleet.submit(lambda device: device.measure(1))
        with pytest.raises(NoDevice, match=r"no device has answered.*what was measured is kept"):
            begun.result(SOON)
        park.free.put("d0")  # it comes back: later work is done
        assert fleet.submit(lambda device: device.measure(2)).result(SOON) == ("d0", 2)


def test_a_device_that_joins_later_is_used() -> None:
    park, told = Park(["d0"], []), list[str]()
    with closing(park.fleet(told)) as fleet:
        assert fleet.wait(SOON) == 1
        park.names.append("d1")
        park.free.put("d1")
        gate = threading.Barrier(2)
        futures = [fleet.submit(lambda device: (gate.wait(SOON), device.name)[1]) for _ in range(2)]
        assert {future.result(SOON) for future in futures} == {"d0", "d1"}
        assert sorted(fleet.names()) == ["d0", "d1"]


def test_a_refused_device_ends_the_start_and_is_named_once() -> None:
    told: list[str] = []

    def connect(is_stopped):
        raise DeviceRefused("device d1 is of another kind")

    with (
        closing(Fleet(connect, lambda: 2, tell=told.append, rest=0.002, poll=0.02)) as fleet,
        pytest.raises(DeviceRefused, match="d1 is of another kind"),
    ):
        fleet.wait(SOON)
    assert told == ["device d1 is of another kind"]


def test_the_start_does_not_wait_for_ever_for_a_device_that_others_use() -> None:
    park = Park(["d0", "busy"], [])
    park.free.get(), park.free.get()
    park.free.put("d0")
    with closing(park.fleet([])) as fleet:
        assert fleet.wait(0.1) == 1


def test_what_is_cancelled_is_not_run_and_closing_ends_all_work() -> None:
    park, told = Park(["d0"], []), list[str]()
    fleet, started, release = park.fleet(told), threading.Event(), threading.Event()

    def long(device: Pretended) -> None:
        started.set()
        if device.closed.wait(SOON):
            raise DeviceLost("closed")

    first = fleet.submit(long)
    assert started.wait(SOON)
    second, third = fleet.submit(lambda device: release.set()), fleet.submit(lambda device: None)
    assert second.cancel()
    fleet.close()
    for future in (first, third):
        with pytest.raises(NoDevice, match="closed"):
            future.result(SOON)
    with pytest.raises(NoDevice):
        fleet.submit(long)
    assert not release.is_set()


def test_one_device_is_the_callers_alone_and_the_others_go_on() -> None:
    park, told = Park(["d0", "d1"], []), list[str]()
    with closing(park.fleet(told)) as fleet:
        fleet.wait(SOON)
        with fleet.one() as device:
            futures = [fleet.submit(lambda device, k=k: device.measure(k)) for k in range(10)]
            assert {future.result(SOON)[0] for future in futures} == {"d0", "d1"} - {device.name}
        with pytest.raises(DeviceLost), fleet.one() as device:
            raise DeviceLost("it died")
        futures = [fleet.submit(lambda device, k=k: device.measure(k)) for k in range(10)]
        assert all(future.result(SOON) for future in futures)
    assert sum("is lost" in text for text in told) == 1
