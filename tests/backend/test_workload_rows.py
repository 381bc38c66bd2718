"""Workload files: rows that are none are refused, and a log's hardware stays its own."""

from types import SimpleNamespace

import pytest

from wmsched import score, zoo
from wmsched.backends.workload import load_rows
from wmsched.errors import DatasetError


def test_a_recorded_program_keeps_the_hardware_of_its_log() -> None:
    row = zoo.find("conv2d-relu")[0]
    there = (20, 64, 64, 0, 0, 0, 0, 0)
    record = SimpleNamespace(layout_rewrite=0, hardware=there)
    workload, text, _ = score._workload(
        row["workload_key"], "cuda -arch=sm_75", record, row
    )  # no GPU is asked
    assert workload.hardware == there and workload.stages and workload.target == "cuda -arch=sm_75"
    assert "for " in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{}", "a JSON list of rows, and this is a dict"),
        (b'[{"tensors": "x"}]', "row 0"),
        (b'[{"tensors": "x", "workload_key": "k"}, 3]', "row 1"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff", "not a readable workload file"),
    ],
)
def test_a_workload_file_that_is_none_says_why(tmp_path, content, says) -> None:
    path = tmp_path / "w.json.gz"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=says):
        load_rows(path)
