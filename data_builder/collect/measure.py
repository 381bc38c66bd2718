"""Builds and times schedules, here or on devices behind TVM's RPC tracker. Needs AutoScheduler's TVM.

Builds and runs happen in TVM's own child processes with time limits, so a schedule that crashes or hangs
costs its limit and becomes a record with an error number.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wmsched.base.cores import name_threads, usable_cores
from wmsched.base.errors import EnvironmentProblem
from wmsched.measure.buffer_offsets import PLACES
from wmsched.measure.malloc_env import steady_buffers
from wmsched.measure.sanity import is_believable
from wmsched.measure.tracker import host_and_port
from wmsched.schedules.types import ERROR_KINDS
from wmsched.toolchain.resolve import autoscheduler_tvm

UNKNOWN_ERROR = 8
FAILED_COST = 1e10  # TVM's mark of "no time"


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How a schedule is timed.

    Attributes
    ----------
    min_repeat_ms : int
        A timing repeats the program for at least so long. With `cache_flush` AutoScheduler's runner
        takes 0 in its place, so a timing is one cold call, or with several places the median of a few.
    repeat : int
        Timings of each schedule.
    places : int
        Sets of buffers that programs are timed on here, `repeat` times on each; see
        `wmsched.measure.buffer_offsets`. MetaSchedule's programs share `min_repeat_ms` out among them.
    build_timeout, run_timeout : int
        Seconds.
    cache_flush : bool
        Flush the caches before each timing.
    cores : tuple of int
        The only cores that programs run on here; () for all.
    rpc : str
        `host:port` of a tracker; "" measures on this machine.
    key : str
        Name of the devices at the tracker.
    """

    min_repeat_ms: int = 60
    repeat: int = 1
    places: int = PLACES
    build_timeout: int = 15
    run_timeout: int = 10
    cache_flush: bool = True
    cores: tuple[int, ...] = ()
    rpc: str = ""
    key: str = ""


class Measurer:
    """Measures batches of schedules of one task after the other.

    Raises
    ------
    EnvironmentProblem
        The cores do not exist, or no device of that name is behind the tracker.
    """

    def __init__(self, options: MeasureOptions) -> None:
        tvm = autoscheduler_tvm()
        ansor = tvm.auto_scheduler
        self._ansor = ansor
        self.devices = 1
        if options.cores:
            pin(options.cores)
        self._builder = ansor.LocalBuilder(timeout=options.build_timeout, n_parallel=usable_cores())
        timing = {
            "timeout": options.run_timeout,
            "repeat": options.repeat,
            "min_repeat_ms": options.min_repeat_ms,
            "cooldown_interval": 0.0,
            "enable_cpu_cache_flush": options.cache_flush,
        }
        if not options.rpc:
            name_threads(tvm)
            self._runner = ansor.LocalRunner(**timing)
            return
        host, port = host_and_port(options.rpc)
        self.devices = devices_behind(host, port, options.key)
        self._runner = ansor.RPCRunner(options.key, host, port, n_parallel=self.devices, **timing)

    def measure(self, task: Any, states: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Build `states` together, then time them, as many at a time as there are devices.

        Parameters
        ----------
        task : tvm.auto_scheduler.SearchTask
        states : sequence of State

        Yields
        ------
        (MeasureInput, MeasureResult)
            As soon as each is known; a schedule that fails has an error number.
        """
        inputs = [self._ansor.MeasureInput(task, state) for state in states]
        try:
            built = list(self._builder.build(inputs, verbose=0))
        except Exception as error:
            # TVM's builder itself failed, not a schedule; its errors have no common base.
            yield from ((entry, self._failed(error)) for entry in inputs)
            return
        for first in range(0, len(inputs), self.devices):
            some = slice(first, first + self.devices)
            try:
                with steady_buffers():  # each run is a process of its own
                    results = list(self._runner.run(inputs[some], built[some], verbose=0))
            except Exception as error:
                results = [self._failed(error)] * len(inputs[some])
            yield from zip(inputs[some], results, strict=True)

    def _failed(self, error: Exception) -> Any:
        text = f"{type(error).__name__}: {error}"
        return self._ansor.measure.MeasureResult([FAILED_COST], UNKNOWN_ERROR, text[-500:], 0.0, time.time())


class Believed:
    """A measurer whose failures are the schedules' own; `wmsched.metaschedule.measure.measurer` is
    MetaSchedule's.

    Parameters
    ----------
    measurer : Measurer
    reference : callable () -> (SearchTask, State)
        A program that must work.
    """

    def __init__(self, measurer: Any, reference: Callable[[], tuple[Any, Any]]) -> None:
        self._measurer = measurer
        self._reference = reference

    def measure(self, task: Any, states: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """As the measurer's, its failures as `wmsched.measure.sanity.is_believable` says.

        Raises
        ------
        EnvironmentProblem
            Nothing can be measured here any more: no schedule is at fault, so none is reported as failed.
        """
        measured = self._measurer.measure(task, states)
        yield from is_believable(
            measured, _ran, self._must_work, see_to="compiler, --target, device and disk"
        )

    def _must_work(self) -> str:
        """Measures the reference program; "", or why it could not be."""
        task, state = self._reference()
        ((_, result),) = self._measurer.measure(task, [state])
        if _ran(result):
            return ""
        return str(result.error_msg).strip() or ERROR_KINDS.get(int(result.error_no), "unknown")


def _ran(result: Any) -> bool:
    return int(result.error_no) == 0


def devices_behind(host: str, port: int, key: str) -> int:
    """How many devices with the name `key` the tracker has, free or in use.

    Raises
    ------
    EnvironmentProblem
        There is no tracker, or it has no such device.
    """
    autoscheduler_tvm()
    from tvm import rpc

    try:
        with socket.create_connection((host, port), timeout=10):  # TVM's own attempt takes a minute to fail
            pass
        summary = rpc.connect_tracker(host, port).summary()
    except Exception as error:
        raise EnvironmentProblem(
            f"no RPC tracker answers at {host}:{port} ({type(error).__name__}); "
            "start one with `PYTHONPATH=$(python -m wmsched.toolchain) python -m "
            "tvm.exec.rpc_tracker --host 0.0.0.0 --port 9190`"
        ) from error
    servers = [entry["key"].removeprefix("server:") for entry in summary.get("server_info", [])]
    count = servers.count(key)
    if not count:
        others = ", ".join(sorted(set(servers))) or "none"
        raise EnvironmentProblem(
            f"the tracker at {host}:{port} has no device {key!r} (it has: {others}); start one there with "
            f"`wmsched-data device --tracker {host}:{port} --key {key}`"
        )
    return count


def pin(cores: Sequence[int]) -> None:
    """Keep this process and its children, the measured programs among them, on `cores`.

    TVM's threads would otherwise bind themselves to cores of their own choice.

    Raises
    ------
    EnvironmentProblem
        This process may not use these cores.
    """
    allowed = os.sched_getaffinity(0)
    if not set(cores) <= allowed:
        raise EnvironmentProblem(f"--cores {list(cores)}: this process may use {sorted(allowed)}")
    os.sched_setaffinity(0, cores)
    os.environ["TVM_BIND_THREADS"] = "0"
    os.environ["TVM_NUM_THREADS"] = str(len(set(cores)))
