"""Connection to one device through a process of its own (`client`), with a time limit for each answer."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from wmsched.base.cores import thread_env
from wmsched.measure.fleet import DeviceLost, DeviceRefused
from wmsched.measure.tracker import Tracker
from wmsched.metaschedule.rpc.client import LOST, OK, REFUSED
from wmsched.toolchain.no_torch import no_torch

POLL_SECONDS = 0.5  # between two looks at whether an answer is still wanted
_environment = threading.Lock()  # processes start with what `no_torch` sets for the whole process


class Link:
    """A client process. Its end, or an answer that is late, is a lost device.

    Parameters
    ----------
    tracker : Tracker
    """

    def __init__(self, tracker: Tracker) -> None:
        command = [sys.executable, "-m", "wmsched.metaschedule.rpc.client", json.dumps(asdict(tracker))]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  it lasts as long as the process
        with _environment, no_torch():
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=thread_env(os.environ),
                start_new_session=True,  # Ctrl-C is for the search, which then ends this process
            )
        self._unread = b""

    def ask(
        self,
        what: str,
        *,
        seconds: float | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        **arguments: Any,
    ) -> Any:
        """Return the answer to a request, one of `Client`'s methods.

        Parameters
        ----------
        seconds : float, optional
            Time limit; None waits until `is_stopped` returns True.

        Raises
        ------
        DeviceLost
            The connection broke, the answer is late, or it is no longer wanted. The process is ended.
        DeviceRefused
            The device cannot be used.
        """
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([what, arguments]).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            self.close()
            raise DeviceLost(f"its client has ended{self._last_words()}") from error
        answer = self._answer(what, None if seconds is None else time.monotonic() + seconds, is_stopped)
        if LOST in answer:
            self.close()
            raise DeviceLost(answer[LOST])
        if REFUSED in answer:
            raise DeviceRefused(answer[REFUSED])
        return answer[OK]

    def _answer(self, what: str, until: float | None, is_stopped: Callable[[], bool]) -> dict[str, Any]:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = POLL_SECONDS if until is None else min(POLL_SECONDS, until - time.monotonic())
            if left <= 0 or is_stopped():
                self.close()
                raise DeviceLost(f"no answer to {what!r} in time" if left <= 0 else "no longer wanted")
            try:
                ready = select.select([output], [], [], left)[0]
                part = os.read(output, 1 << 16) if ready else None
            except (OSError, ValueError):  # closed by another thread
                part = b""
            if part == b"":
                raise DeviceLost(f"its client has ended{self._last_words()}")
            self._unread += part or b""
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_words(self) -> str:
        with suppress(OSError, ValueError):
            self._said.seek(0)
            if text := self._said.read()[-500:].decode("utf-8", "replace").strip():
                return f": {text}"
        return ""

    def close(self) -> None:
        """End the process, and with it the session; any thread may call it, and more than once."""
        with suppress(OSError):
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
