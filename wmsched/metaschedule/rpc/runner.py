"""MetaSchedule runner that times programs on all devices behind TVM's RPC tracker at once.

TVM's own ``RPCRunner`` opens a session for each program, times it on one set of buffers without a reference,
and counts a device that dies as a failure of the program. Here a device is held until the search ends, times
programs as a search on it would, and what it loses goes to another one.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult

from wmsched.base.errors import EnvironmentProblem
from wmsched.measure.fleet import PATIENCE_SECONDS, DeviceLost, DeviceRefused, Fleet, NoDevice
from wmsched.measure.tracker import Tracker
from wmsched.metaschedule.measure.runner import times_of
from wmsched.metaschedule.rpc.link import Link
from wmsched.metaschedule.rpc.remote_device import Gate, RemoteDevice, taken, yardsticks
from wmsched.metaschedule.rpc.server import timing_code
from wmsched.toolchain.resolve import is_cpu

JOIN_SECONDS = 30.0  # after the first device is there, for the others: some may be in use
DESCRIBE_TRIES = 3  # of devices that are lost when they are asked what they are
POLL_SECONDS = 0.5  # between two looks at whether the user pressed Ctrl-C


@derived_object
class DeviceRunner(PyRunner):
    """Runner of programs on a fleet; `opened` makes one.

    Parameters
    ----------
    fleet : Fleet of RemoteDevice
    limit : float
        Seconds after which a device's own runner gives a program up.
    """

    def __init__(self, fleet: Fleet[RemoteDevice], limit: float) -> None:
        super().__init__()
        self.fleet, self.limit = fleet, limit

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Return a future for each input; devices take them in this order."""
        return [_Timing(self.fleet.submit(functools.partial(self._time, one))) for one in runner_inputs]

    def _time(self, one: Any, device: RemoteDevice) -> Any:
        arguments = [argument.as_json() for argument in one.args_info]
        found = device.time(Path(str(one.artifact_path)), str(one.device_type), arguments, self.limit)
        return found


@derived_object
class _Timing(PyRunnerFuture):
    def __init__(self, future: Future[Any]) -> None:
        super().__init__()
        self.future = future

    def done(self) -> bool:
        """Whether `result` will return at once."""
        return self.future.done()

    def cancel(self) -> None:
        """Have no device take the program, if none has."""
        self.future.cancel()

    def result(self) -> Any:
        """Return the times, or the program's error.

        Raises
        ------
        NoDevice
            No device is left: no program is at fault.
        """
        while not self.future.done():
            try:
                self.future.exception(timeout=POLL_SECONDS)
            except TimeoutError:
                continue
            except CancelledError:
                break
        try:
            found = self.future.result()
        except (CancelledError, DeviceLost) as error:
            return RunnerResult(None, str(error) or "cancelled")
        result = RunnerResult(found["seconds"] or None, found["error"] or None)
        if times_of(result) is None:
            return RunnerResult(None, found["error"] or f"no run times: {found['seconds']}")
        return RunnerResult(found["seconds"], None)


@contextmanager
def opened(
    tracker: Tracker, target: Any, *, tell: Callable[[str], None], timeout: float, **options: Any
) -> Iterator[Any]:
    """Hold the devices of a tracker for a search; yields a `DeviceRunner`.

    Parameters
    ----------
    target : tvm.target.Target
    tell : callable (text)
        Called with notes on devices, from any thread.
    timeout : float
        Maximum seconds of a program on a device, including its worker's start.
    **options
        Of the devices' runners: ``places``, ``repeat``, ``min_repeat_ms``, ``cache_flush``.

    Raises
    ------
    EnvironmentProblem
        No tracker or device answers, a device differs from the others or lacks wmsched, or the target is no
        processor.
    """
    if not is_cpu(target):
        raise EnvironmentProblem(
            f"--rpc times on processors, and the target is {target.kind.name}: tune on a machine with such a "
            "device, without --rpc"
        )
    count = len(tracker.addresses())
    with tempfile.TemporaryDirectory(prefix="wmsched-devices-") as folder:
        gate = Gate(
            tracker,
            target,
            yardsticks(target, Path(folder)),
            tell=tell,
            limit=timeout,
            timeout=timeout,
            **options,
        )
        with closing(Fleet(gate.connect, lambda: len(tracker.addresses()), tell=tell)) as fleet:
            there = fleet.wait(JOIN_SECONDS)
            tell(f"{there} of {count} devices {tracker.tracker_key!r} at {tracker.where}")
            yield DeviceRunner(fleet, timeout)
            for name, tally in fleet.tallies.items():
                lost = f", lost {tally.lost} times" if tally.lost else ""
                tell(f"device {name}: {tally.done} programs timed{lost}")


def describe(tracker: Tracker) -> dict[str, Any]:
    """Return `server.about` of a device that is free, and check that it has this version of wmsched.

    Raises
    ------
    EnvironmentProblem
        No tracker or device answers, or a device lacks wmsched.
    """
    tracker.addresses()
    until = time.monotonic() + PATIENCE_SECONDS
    why = f"for {PATIENCE_SECONDS:.0f} seconds all are in use"
    for _ in range(DESCRIBE_TRIES):
        with closing(Link(tracker)) as link:
            try:
                device = taken(link, tracker, lambda: time.monotonic() > until)
            except DeviceLost as error:
                if time.monotonic() > until:
                    break
                why = str(error)
                continue
            own, theirs = timing_code(), device.about["wmsched"]
            if own != theirs:
                raise DeviceRefused(
                    f"device {device.name} ({device.about['host']}) has another wmsched, whose timing is "
                    f"{theirs} and here {own}: install the same version on both"
                )
            return device.about
    raise NoDevice(f"no device {tracker.tracker_key!r} at {tracker.where} answers: {why}")
