"""Workload rows: a log's hardware stays its own."""

from types import SimpleNamespace

from wmsched import zoo
from wmsched.cli import score


def test_a_recorded_program_keeps_the_hardware_of_its_log() -> None:
    row = zoo.find("conv2d-relu")[0]
    there = (20, 64, 64, 0, 0, 0, 0, 0)
    record = SimpleNamespace(layout_rewrite=0, hardware=there)
    workload, text, _ = score._workload(
        row["workload_key"], "cuda -arch=sm_75", record, row
    )  # no GPU is asked
    assert workload.hardware == there and workload.stages and workload.target == "cuda -arch=sm_75"
    assert "for " in text
