"""``wmsched device``: this machine times candidates for searches elsewhere, behind TVM's RPC tracker.

It is TVM's own RPC server with one function more, `CALL`. A session gets a runner as a search on this machine
has it (`measure.measurer.steady_runner`), in a child process with time limits. A candidate that crashes or
hangs ends that child alone, so a session that is lost is never a candidate's fault.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import logging
import multiprocessing
import os
import platform
import signal
import site
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wmsched.base.cores import THREADS, leave_unbound, model_threads, usable_cores
from wmsched.base.errors import EnvironmentProblem
from wmsched.measure.tracker import Tracker, listen
from wmsched.toolchain import python_path

CALL = "wmsched.device.call"  # (name of a handler, JSON of its arguments) -> JSON of its answer
OK, FAILED = "ok", "failed"  # keys of an answer: what the handler returned; why it could not
KEEPALIVE_SECONDS = 30  # of a silent connection, after which its client is asked whether it lives
RETRY_SECONDS = 5.0  # before a tracker that is gone is looked for again
SET_DEATH_SIGNAL = 1  # Linux's prctl: the signal that a process gets when its parent ends

PACKAGE = Path(__file__).resolve().parents[2]  # wmsched
TIMING = ("measure", "metaschedule/measure", "metaschedule/rpc")  # what decides how a program is timed

Handler = Callable[..., Any]
logger = logging.getLogger("wmsched")


class Session:
    """What one client's session has on this machine: its runner, and handlers by name.

    Parameters
    ----------
    more : mapping of str to callable
        Handlers besides `about`, `begin` and `time`.
    """

    def __init__(self, more: Mapping[str, Handler]) -> None:
        self.handlers: dict[str, Handler] = {"about": about, "begin": self.begin, "time": self.time, **more}
        self.runner: Any = None
        self._steady: Any = None  # inside the runner
        self._paired = False  # whether it times beside references, unless it is told not to

    def call(self, name: str, arguments: str) -> str:
        """Answer a request; an exception becomes an answer too."""
        try:
            return json.dumps({OK: self.handlers[name](**json.loads(arguments))})
        except Exception as error:  # of a handler: TVM's and the system's have no common base
            return json.dumps({FAILED: f"{type(error).__name__}: {str(error).strip()[-2000:]}"})

    def begin(self, *, target: str, **options: Any) -> bool:
        """Start the runner of a search for a target; `options` are those of `steady_runner`.

        Raises
        ------
        EnvironmentProblem
            This machine's processor cannot run the target's programs.
        """
        import tvm

        from wmsched.metaschedule.measure.measurer import steady_runner
        from wmsched.metaschedule.measure.runner import checked, python_runner
        from wmsched.toolchain.targets import not_run_here

        found = tvm.target.Target(json.loads(target))
        if wrong := not_run_here(found):
            raise EnvironmentProblem(f"target {target}: {wrong}")
        self._steady = steady_runner(found, **options)
        self.runner = checked(self._steady)
        self._paired = getattr(python_runner(python_runner(self._steady).runner), "paired", False)
        return True

    def time(self, *, library: str, device: str, arguments: list[Any], paired: bool = True) -> dict[str, Any]:
        """Return the seconds of an uploaded library's program, or the error that it ends with."""
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo
        from tvm.s_tir.meta_schedule.runner import RunnerInput

        from wmsched.metaschedule.measure.runner import python_runner

        path = place_of(library)
        if self._paired:
            python_runner(python_runner(self._steady).runner).paired = paired
        try:
            entry = RunnerInput(str(path), device, [ArgInfo.from_json(one) for one in arguments])
            (future,) = self.runner.run([entry])
            found = future.result()
        finally:
            path.unlink(missing_ok=True)
        return {"seconds": [float(t) for t in found.run_secs or ()], "error": str(found.error_msg or "")}


def place_of(name: str) -> Path:
    """Where this session's uploaded file of that name is."""
    import tvm

    return Path(str(tvm.get_global_func("tvm.rpc.server.workpath")(name)))


@functools.cache
def timing_code() -> str:
    """Return a digest of the code that times programs: two versions of it may time otherwise."""
    found = hashlib.sha256()
    for folder in TIMING:
        for path in sorted((PACKAGE / folder).glob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:12]


def about() -> dict[str, Any]:
    """Return what a client must know of this machine. Devices of one kind have `KIND` in common."""
    import tvm

    from wmsched.toolchain.host_cpu import cpu_name
    from wmsched.toolchain.targets import meta_host_target

    return {
        "host": platform.node(),
        "cpu": cpu_name(),
        "target": json.dumps(meta_host_target()),
        "cores": usable_cores(),
        "threads": int(os.environ[THREADS]),
        "tvm": tvm.__version__,
        "wmsched": timing_code(),
    }


def serve(
    tracker: Tracker,
    *,
    host: str = "0.0.0.0",
    port: int = 0,
    custom_addr: str | None = None,
    more: Mapping[str, Handler] | None = None,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted, once the tracker is there. Each session is a process of its own.

    Parameters
    ----------
    tracker : Tracker
    host, port
        Where to listen; port 0 takes a free one.
    custom_addr : str, optional
        The address of this machine that the tracker tells clients; by default the one that it sees.
    more : mapping of str to callable, optional
        Handlers for a session, besides those of `Session`.

    Raises
    ------
    EnvironmentProblem
        The address cannot be listened on, or there is no TVM with MetaSchedule.
    """
    _wait_for(tracker, tell)
    os.environ[THREADS] = str(model_threads(os.environ))  # as a search on this machine has it
    leave_unbound(os.environ)
    _make_path_absolute()
    from wmsched.measure import cache_flush
    from wmsched.toolchain import parallel_launch
    from wmsched.toolchain.resolve import meta_schedule_tvm

    tvm = meta_schedule_tvm()
    parallel_launch.launch_path()  # compiled here, not within a session
    cache_flush.library()
    from tvm.rpc import server

    _mend(tvm, server, more or {})
    listening = listen(host, port)
    number = listening.getsockname()[1]
    tell(f"device {tracker.tracker_key!r} listens on port {number} for the tracker at {tracker.where}")
    address = (tracker.tracker_host, tracker.tracker_port)
    try:
        while True:
            try:
                server._listen_loop(listening, number, tracker.tracker_key, address, "", custom_addr)
            except RuntimeError as error:  # the tracker is gone for longer than TVM waits
                logger.warning("wmsched: %s; looking for the tracker again", error)
                time.sleep(RETRY_SECONDS)
    finally:
        for session in multiprocessing.active_children():
            session.kill()


def _wait_for(tracker: Tracker, tell: Callable[[str], None]) -> None:
    """Return when the tracker answers; a device may be started before it."""
    is_told = False
    while True:
        try:
            tracker.open().close()
            return
        except EnvironmentProblem as error:
            if not is_told:
                tell(f"waiting for the tracker: {error}")
            is_told = True
            time.sleep(RETRY_SECONDS / 5)


def _mend(tvm: Any, server: Any, more: Mapping[str, Handler]) -> None:
    """Give the sessions of TVM's server `CALL`, and keep the server when one of them dies.

    Works around apache-tvm 0.27, whose server ends with a session that is killed (`_serving` raises), leaves
    its folder behind, and waits for ever for a client whose machine has gone. Remove when it does not.
    """
    serving, serve_loop = server._serving, server._serve_loop
    server.logger.setLevel(logging.WARNING)

    def lasting(connection: Any, address: Any, *rest: Any) -> None:
        folder = os.getcwd()
        with suppress(OSError, AttributeError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        try:
            serving(connection, address, *rest)
        except Exception as error:
            logger.warning("wmsched: the session of %s ended: %s", address, error)
        finally:
            os.chdir(folder)
            connection.close()

    def session(connection: Any, load_library: Any, work_path: Any) -> None:
        _end_with_parent()
        # whatever the session leaves behind, the server removes with the session's folder
        tempfile.tempdir = os.environ["TMPDIR"] = str(work_path.path)
        own = Session(more)
        tvm.register_global_func(CALL, own.call, override=True)
        serve_loop(connection, load_library, work_path)

    server._serving, server._serve_loop = lasting, session


def _end_with_parent() -> None:
    """Have this process killed when the server is: its client must not go on with a server that is gone."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _make_path_absolute() -> None:
    """Let child processes import this package from another folder: a session changes into its own."""
    own = [os.path.abspath(entry) for entry in python_path.entries()]
    root = str(PACKAGE.parent)
    if root not in site.getsitepackages():
        own.insert(0, root)
    python_path.export(own)
    sys.path[:] = [os.path.abspath(entry or ".") for entry in sys.path]
