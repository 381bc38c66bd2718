"""Files of workloads and of programs: what is none is refused with the reason, and no row is lost."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from data_builder.metaschedule.programs import read_programs
from data_builder.read.workloads import every_row, merged, read_rows, write_rows
from wmsched.base.errors import DatasetError
from wmsched.schedules.workload_file import load_rows

DAMAGED = {
    "deflate": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff",
    "cut": gzip.compress(b"[" + b'{"workload_key": "k"},' * 99)[:-9],
    "no JSON": b"[{",
    "nesting": b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize(
    ("read", "says"), [(load_rows, "not a readable workload file"), (read_rows, "not a readable"),
                       (lambda path: read_programs(str(path)), "not a list of programs")],
)  # fmt: skip
def test_a_damaged_file_says_so(read, says, damage: str, tmp_path: Path) -> None:
    path = tmp_path / "w.json.gz"
    path.write_bytes(DAMAGED[damage])
    with pytest.raises(DatasetError, match=rf"w\.json\.gz.*{says}"):
        read(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{}", "a JSON list of rows, and this is a dict"),
        (b'[{"tensors": "x"}]', "row 0"),
        (b'[{"tensors": "x", "workload_key": "k"}, 3]', "row 1"),
        (b'[{"tensors": "x", "workload_key": ["k"]}]', "row 0 .*a key that is no text"),
    ],
)
def test_a_row_that_is_none_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_bytes(content)
    for read in (load_rows, read_rows):
        with pytest.raises(DatasetError, match=says):
            read(path)


def test_what_a_row_needs_is_its_readers_affair(tmp_path: Path) -> None:
    path = tmp_path / "w.json.gz"
    path.write_bytes(gzip.compress(json.dumps([{"workload_key": "k"}]).encode()))
    assert list(read_rows(path)) == ["k"]
    with pytest.raises(DatasetError, match=r'row 0 .*"workload_key" and "tensors"'):
        load_rows(path)


def test_two_tasks_of_one_workload_are_two_rows_and_one_key(tmp_path: Path) -> None:
    rows = [{"workload_key": "k", "log": "a.json"}, {"workload_key": "k", "log": "b.json"}]
    path = tmp_path / "w.json.gz"
    write_rows(path, rows)
    assert every_row(path) == rows
    assert read_rows(path) == {"k": rows[0]}


def test_a_task_of_two_networks_has_both() -> None:
    """`collect --workloads zoo` writes a row for each of them."""
    rows = [
        {"workload_key": "k", "network": "a", "weight": 2, "desc": "conv"},
        {"workload_key": "k", "network": "b", "weight": 3, "desc": "conv"},
        {"workload_key": "l", "network": "b", "weight": 1, "desc": "dense"},
    ]
    first, second = merged(map(dict, rows))
    assert first == {**rows[0], "networks": {"a": 2, "b": 3}} and second == rows[2]
