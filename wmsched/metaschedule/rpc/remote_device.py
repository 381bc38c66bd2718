"""A device as a search sees it: its session, what kind of machine it is, and how fast it is beside the first.

Times of two machines of one kind may differ by a constant factor, such as another clock. `YARDSTICKS`, two
programs that every device times when it joins, give the factor. Two kinds of machines have no such factor:
a schedule that is best on one is not on the other.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import te
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from wmsched.measure.fleet import DeviceLost, DeviceRefused
from wmsched.measure.tracker import Tracker
from wmsched.metaschedule.measure.builder import build
from wmsched.metaschedule.rpc.link import Link
from wmsched.metaschedule.rpc.server import FAILED, OK
from wmsched.toolchain.resolve import device_name
from wmsched.toolchain.targets import target_text

#: What devices of one kind have in common, and how a message calls it.
KIND = {
    "cpu": "processor",
    "target": "target",
    "threads": "threads",
    "tvm": "TVM",
    "wmsched": "wmsched's timing code",
}
START_SECONDS = 60.0  # for a runner's start: TVM's import on a slow device
MIN_BYTES_A_SECOND = 1 << 20  # of an upload, below which the device counts as lost
MIN_TIMINGS, MAX_TIMINGS = (
    4,
    12,
)  # of each yardstick on a device; the least counts, for a disturbance only adds
PAUSE_SECONDS = 0.3  # between them: a slow spell lasts seconds
STEADY_TIMINGS, GAIN = (
    3,
    1.02,
)  # in a row that are no such factor below the least so far, after which it stands
SAME_SPEED = 1.1  # factors up to here are noise: times stay as they are
MAX_DISAGREEMENT = 1.5  # between the yardsticks' factors, above which no one factor holds
CACHED, STREAMED = 96, 1 << 22  # extent of a product that stays in the caches; numbers of a sum that does not


@dataclass
class RemoteDevice:
    """A session with a device.

    Parameters
    ----------
    name : str
        Its address, as the tracker gives it.
    link : Link
    silence : float
        Seconds beyond a time limit after which the device is lost.
    about : dict
        `server.about` of it.
    scale : float
        What its times are multiplied by: the first device's speed over its own.
    """

    name: str
    link: Link
    silence: float
    about: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    _uploads: int = 0

    def call(self, handler: str, *, limit: float = 0.0, **arguments: Any) -> Any:
        """Return what a handler of the device's session returns.

        Raises
        ------
        DeviceLost
            It does not answer within `limit` seconds and its silence, or the handler failed.
        """
        seconds = limit + self.silence
        answer = self.link.ask("call", seconds=seconds, name=handler, arguments=arguments)
        if FAILED in answer:
            raise DeviceLost(f"{handler!r} failed on it: {answer[FAILED]}")
        return answer[OK]

    def upload(self, path: Path) -> str:
        """Copy a file to the device; return its name there, which no other file of the session has."""
        self._uploads += 1
        name = f"{self._uploads}-{path.name}"
        limit = path.stat().st_size / MIN_BYTES_A_SECOND
        self.link.ask("upload", seconds=limit + self.silence, path=str(path), name=name)
        return name

    def time(
        self,
        library: Path,
        device: str,
        arguments: Sequence[Any],
        limit: float,
        *,
        paired: bool = True,
    ) -> dict[str, Any]:
        """Time a program; seconds as the first device would take, or the error that it ends with.

        Parameters
        ----------
        device : str
            As TVM names it: "cpu".
        arguments : sequence
            TVM's JSON of each.
        limit : float
            Seconds after which the device's own runner gives up.
        paired : bool
            Whether the program is timed beside a reference.
        """
        if not library.is_file():  # a batch that was given up
            return {"seconds": [], "error": f"{library} is no longer there"}
        name = self.upload(library)
        found: dict[str, Any] = self.call(
            "time",
            limit=limit,
            library=name,
            device=device,
            arguments=list(arguments),
            paired=paired,
        )
        return found | {"seconds": [seconds * self.scale for seconds in found["seconds"]]}

    def close(self) -> None:
        """End the session."""
        self.link.close()


@dataclass(frozen=True)
class Yardstick:
    """A program that tells how fast a device is at one thing."""

    library: Path
    arguments: list[Any]  # TVM's JSON of each


def yardsticks(target: Any, folder: Path) -> list[Yardstick]:
    """Build a product that stays in the caches and a sum that comes from memory."""
    a, b = te.placeholder((CACHED, CACHED), name="a"), te.placeholder((CACHED, CACHED), name="b")
    k = te.reduce_axis((0, CACHED), "k")
    product = te.compute((CACHED, CACHED), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    x, y = te.placeholder((STREAMED,), name="x"), te.placeholder((STREAMED,), name="y")
    total = te.compute((STREAMED,), lambda i: x[i] + y[i], name="z")
    found = []
    for name, arguments in (("product", [a, b, product]), ("sum", [x, y, total])):
        function = te.create_prim_func(arguments)
        path = folder / f"{name}.so"
        build(tvm.IRModule({"main": function}), target).export_library(str(path))
        found.append(Yardstick(path, [one.as_json() for one in ArgInfo.from_prim_func(function)]))
    return found


class Gate:
    """Admits devices: the first as the one that others are compared with, the others if they are of its kind.

    Parameters
    ----------
    tracker : Tracker
    target : tvm.target.Target
    programs : sequence of Yardstick
    tell : callable (text)
        Called with a note on a device whose speed differs.
    limit : float
        Seconds after which a device's runner gives a program up.
    **options
        Of the devices' runners (`steady_runner`).
    """

    def __init__(
        self,
        tracker: Tracker,
        target: Any,
        programs: Sequence[Yardstick],
        *,
        tell: Callable[[str], None],
        limit: float,
        **options: Any,
    ) -> None:
        self.tracker, self.target, self.programs = tracker, target, programs
        self.tell, self.limit, self.options = tell, limit, options
        self.first: RemoteDevice | None = None
        self._seconds: list[float] = []  # of the first device's yardsticks
        self._lock = threading.Lock()
        self._known: dict[str, float] = {}  # by address: the scale that was told

    def connect(self, is_stopped: Callable[[], bool]) -> RemoteDevice | None:
        """Wait for a free device and admit it, as `Fleet` wants it."""
        link = Link(self.tracker)
        try:
            device = taken(link, self.tracker, is_stopped)
            self._compare(device)
            self._begin(device)
            self._calibrate(device)
        except BaseException:
            link.close()
            if is_stopped():
                return None
            raise
        return device

    def _compare(self, device: RemoteDevice) -> None:
        with self._lock:
            first = self.first
            if first is None:
                self.first = first = device
        if wrong := differences(first, device):
            raise DeviceRefused(
                f"device {device.name} ({device.about['host']}) is of another kind than {first.name} "
                f"({first.about['host']}): {wrong}. Schedules of one are not the best of the other: give the "
                f"devices of each kind a --key of their own; {self.tracker.tracker_key!r} is for one kind"
            )

    def _begin(self, device: RemoteDevice) -> None:
        try:
            device.call("begin", limit=START_SECONDS, target=target_text(self.target), **self.options)
        except DeviceLost as error:
            if "EnvironmentProblem" in str(error):
                raise DeviceRefused(f"device {device.name}: {error}") from error
            raise

    def _calibrate(self, device: RemoteDevice) -> None:
        """Set the device's scale; the first one's is 1.

        Raises
        ------
        DeviceRefused
            It is faster at one thing and slower at another, so no factor makes its times comparable.
        """
        with self._lock:  # the others wait for the first one's timings
            if not self._seconds:
                self._seconds = self._least(device, lambda least: False)
                return

        def is_same(least: list[float]) -> bool:
            return all(1 <= SAME_SPEED * a / b <= SAME_SPEED**2 for a, b in zip(self._seconds, least))

        own = self._least(device, is_same)
        ratios = [theirs / mine for theirs, mine in zip(self._seconds, own)]
        if max(ratios) > MAX_DISAGREEMENT * min(ratios):
            raise DeviceRefused(
                f"device {device.name} ({device.about['host']}) is {ratios[0]:.2f} times as fast as the "
                f"first at arithmetic and {ratios[1]:.2f} times at memory: no one factor makes its times "
                "comparable. If other programs run on it, end them; else give it a --key of its own"
            )
        factor = math.exp(sum(map(math.log, ratios)) / len(ratios))
        device.scale = 1.0 if 1 / SAME_SPEED <= factor <= SAME_SPEED else factor
        if device.scale != self._known.get(device.name, 1.0):
            self.tell(
                f"device {device.name} ({device.about['host']}) is {factor:.2f} times as fast as the first: "
                "its times are multiplied by that"
            )
        self._known[device.name] = device.scale

    def _least(self, device: RemoteDevice, is_enough: Callable[[list[float]], bool]) -> list[float]:
        """Least seconds of each yardstick on a device, once they are steady or enough.

        The device times them without references (`wmsched.measure.paired`): a reference keeps what its first
        timing made of the speed.
        """
        least, steady = [math.inf] * len(self.programs), 0
        for k in range(MAX_TIMINGS):
            if k:
                time.sleep(PAUSE_SECONDS)
            now = [self._once(device, one) for one in self.programs]
            steady = steady + 1 if all(a * GAIN >= b for a, b in zip(now, least)) else 0
            least = [min(pair) for pair in zip(least, now)]
            if is_enough(least) or (k + 1 >= MIN_TIMINGS and steady >= STEADY_TIMINGS):
                break
        return least

    def _once(self, device: RemoteDevice, one: Yardstick) -> float:
        kind = device_name(self.target)
        found = device.time(one.library, kind, one.arguments, self.limit, paired=False)
        if not found["seconds"]:
            raise DeviceLost(f"a program that must work failed: {found['error'][-300:]}")
        return float(min(found["seconds"]))


def taken(link: Link, tracker: Tracker, is_stopped: Callable[[], bool]) -> RemoteDevice:
    """Wait for a free device, connect, and ask what it is.

    Raises
    ------
    DeviceLost
        It does not answer.
    DeviceRefused
        It is no `wmsched device`.
    """
    silence = tracker.session_timeout_sec
    device = RemoteDevice(link.ask("take", is_stopped=is_stopped), link, silence)
    try:
        link.ask("open", seconds=START_SECONDS + silence, is_stopped=is_stopped)
        device.about = device.call("about", limit=START_SECONDS)
    except DeviceLost as error:
        raise DeviceLost(f"device {device.name}: {error}") from error
    except DeviceRefused as error:
        raise DeviceRefused(f"device {device.name}: {error}") from error
    return device


def differences(first: RemoteDevice, other: RemoteDevice) -> str:
    """What two devices do not have in common of `KIND`, as text; "" if they are of one kind."""
    return ", ".join(
        f"{label} {other.about.get(name)} in place of {first.about.get(name)}"
        for name, label in KIND.items()
        if first.about.get(name) != other.about.get(name)
    )
