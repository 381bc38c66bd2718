"""Address of TVM's RPC tracker, and what it says of its devices. Needs no TVM.

The tracker's messages are a length in four bytes and JSON (`tvm/rpc/base.py`).
"""

from __future__ import annotations

import json
import socket
import struct
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from wmsched.base.errors import EnvironmentProblem

MAGIC = 0x2F271  # what a client sends to the tracker first, and gets back
SUCCESS, REQUEST, SUMMARY = 0, 4, 6  # codes of messages
MAX_MESSAGE_BYTES = 1 << 24
CONNECT_SECONDS = 10.0
HOW_TO_START = "python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port 9190"


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """RPC tracker and the key of its devices; the names are those of TVM's ``RPCConfig``.

    Parameters
    ----------
    tracker_host : str
    tracker_port : int
    tracker_key : str
        Name of the devices of one kind.
    session_priority : int
        Of requests for a device; the largest comes first.
    session_timeout_sec : float
        Seconds that the tracker or a device may be silent, in addition to a candidate's time limit.
    """

    tracker_host: str
    tracker_port: int
    tracker_key: str
    session_priority: int = 1
    session_timeout_sec: float = 10

    @classmethod
    def parse(cls, address: str, key: str, *, option: str = "--rpc", **more: Any) -> Tracker:
        """Return the tracker at ``host:port``; `option` is what errors call the address.

        Raises
        ------
        EnvironmentProblem
            The address is not of that form, or there is no key.
        """
        host, port = host_and_port(address, option=option)
        if not key:
            raise EnvironmentProblem(f"{option} {address!r}: --key names the devices to use; there is none")
        return cls(tracker_host=host, tracker_port=port, tracker_key=key, **more)

    @classmethod
    def of(cls, config: Any) -> Tracker:
        """Return the tracker of a TVM ``RPCConfig``, normalized by it, or of another `Tracker`."""
        if isinstance(config, cls):
            return config
        fields = ("tracker_host", "tracker_port", "tracker_key", "session_priority", "session_timeout_sec")
        return cls(**{name: getattr(config, name) for name in fields})

    @property
    def where(self) -> str:
        """``host:port``, for messages."""
        return f"{self.tracker_host}:{self.tracker_port}"

    def open(self) -> socket.socket:
        """Return a connection to the tracker.

        Raises
        ------
        EnvironmentProblem
            No tracker answers there.
        """
        try:
            found = socket.create_connection(
                (self.tracker_host, self.tracker_port), timeout=min(CONNECT_SECONDS, self.session_timeout_sec)
            )
            try:
                found.sendall(struct.pack("<i", MAGIC))
                if struct.unpack("<i", _exactly(found, 4))[0] != MAGIC:
                    raise OSError("what answers is no tracker")
            except BaseException:
                found.close()
                raise
        except OSError as error:
            raise EnvironmentProblem(
                f"no RPC tracker answers at {self.where} ({type(error).__name__}: {error}); start one with "
                f"`{HOW_TO_START}`"
            ) from error
        return found

    def addresses(self) -> list[str]:
        """Return ``host:port`` of the devices with this key, free or in use.

        Raises
        ------
        EnvironmentProblem
            There is no tracker, or no such device.
        """
        with closing(self.open()) as connection:
            try:
                code, summary = ask(connection, [SUMMARY])
            except (OSError, ValueError) as error:
                raise EnvironmentProblem(
                    f"the RPC tracker at {self.where} answers nothing: {error}"
                ) from error
        if code != SUCCESS:
            raise EnvironmentProblem(f"the RPC tracker at {self.where} answers with the code {code}")
        servers = [
            (str(one["key"]).removeprefix("server:"), ":".join(map(str, one["addr"])))
            for one in summary.get("server_info", [])
        ]
        found = [address for key, address in servers if key == self.tracker_key]
        if not found:
            others = ", ".join(sorted({key for key, _ in servers})) or "none"
            raise EnvironmentProblem(
                f"the tracker at {self.where} has no device {self.tracker_key!r} (it has: {others}); start "
                f"one with `wmsched device --tracker {self.where} --key {self.tracker_key}`"
            )
        return found


def host_and_port(address: str, *, option: str = "--rpc") -> tuple[str, int]:
    """Return the parts of ``host:port``; `option` is what errors call the address.

    Raises
    ------
    EnvironmentProblem
        The address is not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise EnvironmentProblem(f"{option} {address!r} is not host:port, such as 10.0.0.5:9190")
    return host.strip("[]"), int(port)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0: any free one.

    Raises
    ------
    EnvironmentProblem
        The address cannot be had.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        raise EnvironmentProblem(f"cannot listen on {host}:{port}: {error.strerror}; try another") from error
    listening.listen(1)
    return listening


def ask(connection: socket.socket, message: Any) -> Any:
    """Send a message; return the answer."""
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("<i", len(data)) + data)
    (size,) = struct.unpack("<i", _exactly(connection, 4))
    if not 0 < size <= MAX_MESSAGE_BYTES:
        raise ValueError(f"an answer of {size} bytes")
    return json.loads(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise OSError("the connection was closed")
        found += part
    return found
