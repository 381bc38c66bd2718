"""Queue of work for devices that die, hang and come back. Knows neither TVM nor a scheduler.

Work that a device loses goes to the next free one, before all other work. Its result is taken once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from wmsched.base.errors import EnvironmentProblem

MAX_LOSSES = 5  # devices that one piece of work may lose before it is taken for the cause
MAX_DEVICES = 256  # threads of one fleet
POLL_SECONDS = 5.0  # between two counts of the devices
MIN_REST_SECONDS, MAX_REST_SECONDS = 1.0, 30.0  # before another device is asked for after a failure
PATIENCE_SECONDS = 120.0  # without any device, after which waiting work fails

logger = logging.getLogger("wmsched")


class DeviceLost(Exception):
    """A device no longer answers; what it was doing is not done."""


class DeviceRefused(EnvironmentProblem):
    """A device answers and must not be used: it lacks something or differs from the others."""


class NoDevice(EnvironmentProblem):
    """No device is left for the work that waits."""


class Device(Protocol):
    """What a fleet has to know of a device."""

    name: str

    def close(self) -> None:
        """End the connection; what the device is doing raises `DeviceLost`. Any thread may call it."""


D = TypeVar("D", bound=Device)


@dataclass(eq=False)
class _Work(Generic[D]):
    run: Callable[[D], Any]
    future: Future[Any] = field(default_factory=Future)
    losses: list[str] = field(default_factory=list)  # why each of its devices was lost


@dataclass
class Tally:
    """What one device did: pieces of work done, and how often it was lost."""

    done: int = 0
    lost: int = 0


class Fleet(Generic[D]):
    """Devices that take work from one queue, each in a thread of its own.

    Parameters
    ----------
    connect : callable (is_stopped) -> Device or None
        Waits for a free device. It returns None once `is_stopped` returns True, and raises `DeviceLost` where
        a device fails at it and `DeviceRefused` for one that must not be used.
    count : callable () -> int
        Number of devices that there are, free or not. Any exception leaves the number as it was.
    tell : callable (text)
        Called from any thread with a note on a device that is lost, refused or new.
    patience : float
        Seconds without any device after which waiting work fails with `NoDevice`.
    rest : float
        Seconds before another device is asked for after a failure; doubled with each one in a row.

    Examples
    --------
    >>> with closing(Fleet(connect, count)) as fleet:
    ...     fleet.wait(60)
    ...     futures = [fleet.submit(work) for work in many]
    ...     results = [future.result() for future in futures]
    """

    def __init__(
        self,
        connect: Callable[[Callable[[], bool]], D | None],
        count: Callable[[], int],
        *,
        tell: Callable[[str], None] = logger.warning,
        patience: float = PATIENCE_SECONDS,
        rest: float = MIN_REST_SECONDS,
        poll: float = POLL_SECONDS,
    ) -> None:
        self._connect, self._count, self._tell = connect, count, tell
        self._patience, self._rest_seconds, self._poll = patience, rest, poll
        self._changed = threading.Condition()
        self._waiting: deque[_Work[D]] = deque()
        self._devices: list[D] = []
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._last_seen = time.monotonic()  # when there was a device last
        self._why = ""  # of the last failure to get a device
        self.refused: list[str] = []  # why each refused device is; each reason once
        self.tallies: dict[str, Tally] = {}  # by a device's name
        self._supervisor = threading.Thread(target=self._supervise, name="wmsched-fleet", daemon=True)
        self._supervisor.start()

    def wait(self, seconds: float) -> int:
        """Wait until each counted device is connected or refused, at most `seconds` once one is connected.

        Returns
        -------
        int
            Number of connected devices.

        Raises
        ------
        DeviceRefused
            One of them must not be used.
        NoDevice
            None could be connected within the fleet's patience.
        """
        began = time.monotonic()
        with self._changed:
            while True:
                spent = time.monotonic() - began
                settled = len(self._devices) + len(self.refused) >= max(1, len(self._threads))
                if self.refused:
                    raise DeviceRefused("; ".join(self.refused))
                if self._devices and (settled or spent > seconds):
                    return len(self._devices)
                if spent > max(seconds, self._patience):
                    raise NoDevice(self._none_left())
                self._changed.wait(0.2)

    def submit(self, run: Callable[[D], Any]) -> Future[Any]:
        """Queue work; its future has what `run` returns or raises, `DeviceLost` aside.

        A future that is cancelled before a device takes it is never run.
        """
        work: _Work[D] = _Work(run)
        with self._changed:
            if self._closed.is_set():
                raise NoDevice("the fleet is closed")
            self._waiting.append(work)
            self._changed.notify()
        return work.future

    @contextmanager
    def one(self) -> Iterator[D]:
        """A device for the caller alone, until the block ends; `DeviceLost` of the block is passed on."""
        release, taken = threading.Event(), Future[D]()
        lost: list[DeviceLost] = []

        def hold(device: D) -> None:
            if release.is_set():  # given to another device after the block has lost its own
                return
            taken.set_result(device)
            release.wait()
            if lost:
                raise lost[0]

        future = self.submit(hold)
        try:
            while not taken.done():
                if future.done():  # no device took it
                    future.result()
                with suppress(TimeoutError):
                    taken.result(timeout=0.2)
            try:
                yield taken.result()
            except DeviceLost as error:
                lost.append(error)
                raise
        finally:
            future.cancel()
            release.set()

    def names(self) -> list[str]:
        """Return the names of the connected devices."""
        with self._changed:
            return [device.name for device in self._devices]

    def close(self) -> None:
        """End all connections; work that is not done fails with `NoDevice`. A second call does nothing."""
        with self._changed:
            self._closed.set()
            waiting, devices = list(self._waiting), list(self._devices)
            self._waiting.clear()
            self._changed.notify_all()
        for device in devices:
            with suppress(Exception):
                device.close()
        for work in waiting:
            _fail(work, NoDevice("the fleet is closed"))
        for thread in [self._supervisor, *self._threads]:
            if thread is not threading.current_thread():
                thread.join(timeout=10)

    def _supervise(self) -> None:
        """Have a thread for each device, and fail the work that no device is left for."""
        while not self._closed.is_set():
            with suppress(Exception):
                self._start_threads(self._count())
            failed: list[_Work[D]] = []
            with self._changed:
                if self._devices or not self._waiting:
                    self._last_seen = time.monotonic()
                elif time.monotonic() - self._last_seen > self._patience:
                    failed, self._waiting = list(self._waiting), deque()
            for work in failed:
                _fail(work, NoDevice(self._none_left()))
            self._closed.wait(self._poll)

    def _start_threads(self, wanted: int) -> None:
        with self._changed:
            for _ in range(min(wanted, MAX_DEVICES) - len(self._threads)):
                thread = threading.Thread(target=self._work, name="wmsched-device", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _none_left(self) -> str:
        return (
            f"no device has answered for {self._patience:.0f} seconds"
            + (f" ({self._why[-500:]})" if self._why else "")
            + "; what was measured is kept. See to the tracker and its devices, and go on then"
        )

    def _work(self) -> None:
        failures = 0  # in a row
        while not self._closed.is_set():
            if failures:
                rest = min(self._rest_seconds * 2 ** (failures - 1), MAX_REST_SECONDS)
                self._closed.wait(rest)
            try:
                device = self._connect(self._closed.is_set)
            except DeviceRefused as error:
                failures += 1
                self._refuse(str(error))
                continue
            except Exception as error:  # of a connection; TVM's and the system's have no common base
                failures += 1
                self._why = f"{type(error).__name__}: {error}"
                logger.info("wmsched: no device: %s", self._why)
                continue
            if device is None:
                return
            failures = 0 if self._use(device) else failures + 1

    def _refuse(self, why: str) -> None:
        with self._changed:
            is_new = why not in self.refused
            if is_new:
                self.refused.append(why)
            self._why = why
            self._changed.notify_all()
        if is_new:
            self._tell(why)

    def _use(self, device: D) -> bool:
        """Run work on a device until it is lost; whether it did any."""
        done = 0
        with self._changed:
            self._devices.append(device)
            tally = self.tallies.setdefault(device.name, Tally())
            self._changed.notify_all()
        try:
            while (work := self._next()) is not None:
                try:
                    found = work.run(device)
                except DeviceLost as error:
                    tally.lost += 1
                    self._lose(work, device, str(error))
                    return bool(done)
                except BaseException as error:
                    work.future.set_exception(error)
                else:
                    work.future.set_result(found)
                    tally.done += 1
                    done += 1
            return True
        finally:
            with self._changed:
                self._devices.remove(device)
                self._last_seen = time.monotonic()
            with suppress(Exception):
                device.close()

    def _next(self) -> _Work[D] | None:
        """Wait for work; None once the fleet is closed."""
        with self._changed:
            while not self._closed.is_set():
                while self._waiting:
                    work = self._waiting.popleft()
                    if work.losses or work.future.set_running_or_notify_cancel():
                        return work
                self._changed.wait()
        return None

    def _lose(self, work: _Work[D], device: D, why: str) -> None:
        """Queue work again, before all other; fail it where it has lost too many devices."""
        work.losses.append(f"{device.name}: {why}")
        with self._changed:
            is_closed = self._closed.is_set()
            is_blamed = len(work.losses) >= MAX_LOSSES
            if not is_closed and not is_blamed:
                self._waiting.appendleft(work)
                self._changed.notify()
        if is_closed:
            _fail(work, NoDevice("the fleet is closed"))
            return
        self._tell(f"device {device.name} is lost ({why[-300:]})")
        if is_blamed:
            _fail(work, DeviceLost(f"{len(work.losses)} devices were lost at it; the last: {why[-300:]}"))


def _fail(work: _Work[Any], error: Exception) -> None:
    if work.losses or work.future.set_running_or_notify_cancel():
        work.future.set_exception(error)
