"""A tracker and devices of it, all processes of this machine that a test may kill, stop and let go on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from wmsched.base.cores import thread_env
from wmsched.base.errors import EnvironmentProblem
from wmsched.measure.tracker import Tracker

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Park:
    """Processes by name; "tracker" is the tracker.

    Parameters
    ----------
    folder : Path
        For what the processes say.
    """

    def __init__(self, folder: Path, key: str = "board", silence: float = 3.0) -> None:
        self.folder, self.processes = folder, dict[str, subprocess.Popen]()
        port = free_port()
        self.tracker = Tracker(
            tracker_host="127.0.0.1", tracker_port=port, tracker_key=key, session_timeout_sec=silence
        )
        ports = ["--port", str(port), "--port-end", str(port + 1)]
        self._start("tracker", "tvm.exec.rpc_tracker", "--host", "127.0.0.1", *ports, "--silent")

    def device(self, name: str, *, core: int | None = None, **environment: str) -> None:
        """Start a device, by default on any core."""
        where = ["--host", "127.0.0.1", "--tracker", self.tracker.where, "--key", self.tracker.tracker_key]
        self._start(name, "wmsched", "device", *where, core=core, **environment)

    def plain(self, name: str) -> None:
        """Start an RPC server of TVM's that is no `wmsched device`."""
        where = ["--tracker", self.tracker.where, "--key", self.tracker.tracker_key]
        self._start(name, "tvm.exec.rpc_server", "--host", "127.0.0.1", *where)

    def _start(self, name: str, *command: str, core: int | None = None, **environment: str) -> None:
        pinned = [] if core is None else ["taskset", "-c", str(core)]
        env = {**thread_env(os.environ), "PYTHONPATH": str(ROOT), **environment}
        with open(self.folder / f"{name}.txt", "ab") as said:
            self.processes[name] = subprocess.Popen(
                [*pinned, sys.executable, "-m", *command],
                stdout=said,
                stderr=said,
                env=env,
                start_new_session=True,
            )

    def wait(self, count: int) -> None:
        """Until the tracker knows so many devices."""
        until = time.monotonic() + START_SECONDS
        found: list[str] = []
        while time.monotonic() < until:
            try:
                found = self.tracker.addresses()
            except EnvironmentProblem:
                found = []
            if len(found) == count:
                return
            time.sleep(0.2)
        said = {path.name: path.read_text()[-500:] for path in self.folder.glob("*.txt")}
        raise AssertionError(f"{len(found)} of {count} devices have come: {said}")

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a device and all its children."""
        os.killpg(self.processes[name].pid, number)

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        self.processes[name].wait()

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
