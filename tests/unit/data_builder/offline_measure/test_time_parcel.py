"""The parts of timing a parcel that need no TVM."""

from __future__ import annotations

import struct

import pytest

from data_builder.offline_measure import parcel_worker, time_parcel


def text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def test_machine_code_takes_the_source_s_place_in_a_module_of_kernels() -> None:
    table = struct.pack("<Q", 1) + text(b"main_kernel") + struct.pack("<QQQ", 3, 2, 7)
    source = b'extern "C" __global__ void main_kernel(float* a) {}'
    found = parcel_worker.compiled(text(b"cuda") + table + text(source), b"\x7fELF code")
    assert found == text(b"cubin") + table + text(b"\x7fELF code")
    # a module that came compiled stays
    assert parcel_worker.compiled(found, b"") == found


def test_a_line_cut_short_is_not_read(tmp_path) -> None:
    path = tmp_path / "seconds.jsonl"
    assert time_parcel.rows(path) == []
    path.write_text('{"key": "a", "seconds": [1.0]}\n{"key": "b", "sec')
    assert [row["key"] for row in time_parcel.rows(path)] == ["a"]
    time_parcel.mend(path)  # nor is the next one written behind it
    assert path.read_text() == '{"key": "a", "seconds": [1.0]}\n'
    time_parcel.mend(path)
    time_parcel.mend(tmp_path / "none.jsonl")
    assert path.read_text() == '{"key": "a", "seconds": [1.0]}\n'


def test_inputs_are_the_same_wherever_they_are_drawn() -> None:
    first, second = parcel_worker.drawn([(2, 3), (4,), (5, 6)])
    places = parcel_worker.places((5, 6))
    assert first.shape == (2, 3) and second.shape == (4,) and places.max() < 30 <= parcel_worker.PLACES
    again, _ = parcel_worker.drawn([(2, 3), (4,), (5, 6)])
    assert (first == again).all() and (places == parcel_worker.places((5, 6))).all()


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A stand-in for the worker: its source is what `sys.executable` runs."""

    def written(source: str):
        path = tmp_path / "worker.py"
        path.write_text(source)
        monkeypatch.setattr(time_parcel, "WORKER", path)
        return time_parcel.Worker("cpu", patience=2.0)

    return written


def test_a_worker_that_dies_or_hangs_is_replaced(script) -> None:
    worker = script(
        "import json, sys, time\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    what = json.loads(line)['what']\n"
        "    if what == 'die': sys.exit(1)\n"
        "    if what == 'hang': time.sleep(60)\n"
        "    print(json.dumps({'error': 'a fault'} if what == 'fault' else {'seconds': [1.0]}), flush=True)\n"
    )
    try:
        for what in ("time", "die", "time", "hang", "time", "fault", "time"):
            answer = worker.ask({"what": what})
            assert ("seconds" in answer) == (what == "time"), what
        assert worker.ask({"what": "fault"}) == {"error": "a fault"}
        assert worker.process is None  # after a fault nothing more runs in it
    finally:
        worker.stop()


def test_a_worker_that_does_not_start_is_an_answer(script) -> None:
    assert "did not start" in script("raise SystemExit(3)").ask({})["error"]
