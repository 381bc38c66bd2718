"""Process that talks to one device, so that a device that hangs blocks this process and no search.

It reads a request a line from its standard input, JSON, and writes an answer a line. It ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import IO, Any

from wmsched.measure.tracker import REQUEST, SUCCESS, Tracker, ask

OK, REFUSED, LOST = "ok", "refused", "lost"  # keys of an answer


class Refused(Exception):
    """The device answers and cannot be used."""


class Client:
    """A session with one device. Requests are the names of the methods.

    Parameters
    ----------
    tracker : Tracker
    """

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.given: list[Any] = []  # address, port and the key of one connection
        self.session: Any = None

    def take(self) -> str:
        """Wait until the tracker gives a device; return its address."""
        with contextlib.closing(self.tracker.open()) as connection:
            connection.settimeout(None)  # as long as others use the devices
            wanted = [REQUEST, self.tracker.tracker_key, "", self.tracker.session_priority]
            code, self.given = ask(connection, wanted)
            if code != SUCCESS:
                raise OSError(f"the tracker answers with the code {code}")
        return f"{self.given[0]}:{self.given[1]}"

    def open(self) -> bool:
        """Connect to the device that `take` was given."""
        from tvm import rpc

        from wmsched.metaschedule.rpc.server import CALL

        self.session = rpc.connect(*self.given)
        try:
            self.session.get_function(CALL)
        except Exception as error:
            raise Refused(
                "it is a plain RPC server of TVM, and candidates are timed by wmsched there; install wmsched "
                f"and start `wmsched device --tracker {self.tracker.where} --key {self.tracker.tracker_key}` "
                f"in its place ({str(error).strip()[-200:]})"
            ) from error
        return True

    def upload(self, path: str, name: str) -> bool:
        """Copy a file to the session's folder on the device."""
        self.session.upload(bytearray(Path(path).read_bytes()), name)
        return True

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Have the device answer a request (`server.Session.call`)."""
        from wmsched.metaschedule.rpc.server import CALL

        return json.loads(self.session.get_function(CALL)(name, json.dumps(arguments)))


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what TVM prints is no answer
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, requests), daemon=True).start()
    client = Client(Tracker(**json.loads(sys.argv[1])))
    while True:
        what, arguments = json.loads(requests.get())
        try:
            answer = {OK: getattr(client, what)(**arguments)}
        except Refused as error:
            answer = {REFUSED: str(error)}
        except Exception as error:  # of the connection; TVM's and the system's have no common base
            answer = {LOST: f"{type(error).__name__}: {str(error).strip()[-1000:]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _read(stream: IO[str], requests: queue.SimpleQueue[str]) -> None:
    """Pass requests on; end the process with its input, even where it waits for a device that hangs."""
    for line in stream:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
