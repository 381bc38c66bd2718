"""Address of TVM's RPC tracker, its answers, and the figure that is worked out of a fleet's lines."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.tune.meta.rpc_fleet import speedups
from wmsched.base.errors import EnvironmentProblem
from wmsched.cli.main import app
from wmsched.measure.tracker import MAGIC, Tracker


@contextmanager
def answering(*parts: bytes) -> Iterator[Tracker]:
    """A pretended tracker: what it sends after the client's magic number."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4)
                for part in parts:
                    connection.sendall(part)
                connection.recv(100)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        yield Tracker(tracker_host="127.0.0.1", tracker_port=port, tracker_key="b", session_timeout_sec=5)
        thread.join(10)


def message(data: Any) -> bytes:
    text = json.dumps(data).encode()
    return struct.pack("<i", len(text)) + text


def test_an_address_is_a_host_and_a_port() -> None:
    found = Tracker.parse("[::1]:9190", "board", session_priority=2)
    assert (found.tracker_host, found.tracker_port, found.session_priority) == ("::1", 9190, 2)
    assert Tracker.of(found) is found
    for wrong in ("board", ":9190", "host:", "host:0", "host:x"):
        with pytest.raises(EnvironmentProblem, match=r"is not host:port, such as"):
            Tracker.parse(wrong, "board")
    with pytest.raises(EnvironmentProblem, match="--key names the devices"):
        Tracker.parse("host:9190", "")


def test_devices_are_those_of_the_key() -> None:
    servers = [{"key": f"server:{key}", "addr": ["10.0.0.1", k]} for k, key in enumerate("abb")]
    with answering(struct.pack("<i", MAGIC), message([0, {"server_info": servers}])) as tracker:
        assert tracker.addresses() == ["10.0.0.1:1", "10.0.0.1:2"]
    with (
        answering(struct.pack("<i", MAGIC), message([0, {"server_info": servers[:1]}])) as tracker,
        pytest.raises(
            EnvironmentProblem, match=r"no device 'b' \(it has: a\); start one with `wmsched device"
        ),
    ):
        tracker.addresses()


@pytest.mark.parametrize(
    "parts", [[b"HTTP"], [struct.pack("<i", MAGIC)], [struct.pack("<i", MAGIC), message([])], []]
)
def test_what_is_no_tracker_is_an_error_with_its_address(parts: list[bytes]) -> None:
    closing = [*parts, b""]
    with answering(*closing) as tracker, pytest.raises(EnvironmentProblem, match=tracker.where):
        impatient = Tracker(
            tracker_host=tracker.tracker_host, tracker_port=tracker.tracker_port, tracker_key="b",
            session_timeout_sec=0.2,
        )  # fmt: skip
        impatient.addresses()


@pytest.mark.parametrize(
    "options", [["--rpc", "h:1"], ["--key", "k"], ["--rpc", "h:1", "--key", "k", "--trials", "0"]]
)
def test_the_option_rpc_needs_a_key_and_a_search(options: list[str], tmp_path: Any) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"")
    ran = CliRunner().invoke(app, ["tune", str(model), *options])
    assert ran.exit_code == 2 and "takes both --rpc" in ran.output
    tasks = CliRunner().invoke(app, ["tune", "resnet50/6", "--rpc", "h:1", "--key", "k"])
    assert tasks.exit_code == 2 and "--scheduler meta" in tasks.output


def test_the_speedup_is_of_complete_rounds() -> None:
    def line(number: int, devices: str, seconds: float) -> dict[str, Any]:
        return {
            "kind": "rpc_fleet", "round": number, "devices": devices, "candidates": 32, "seconds": seconds
        }  # fmt: skip

    whole = [line(0, "first", 8.0), line(0, "second", 8.0), line(0, "both", 4.0)]
    assert speedups([*whole, line(1, "first", 8.0)]) == [2.0]
    assert speedups([]) == []
