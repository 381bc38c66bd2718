"""A dataset's records as logs again: what is built of those is the same dataset."""

from __future__ import annotations

import gzip

import pytest
from dataset_files import record_line
from merged_datasets import make
from toy_stored import write_toy

from benchmarks.records import read
from data_builder.derive.export_logs import export_logs
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import Dataset
from wmsched.schedules.steps import parse_record
from wmsched.schedules.traces import KEY_PREFIX


def content(root) -> dict[str, list]:
    dataset = Dataset(root)
    return {
        name: [(each.steps, each.measurement) for each in dataset.trajectories(name)]
        for name in dataset.workload_ids
    }


def test_a_dataset_of_the_exported_logs_is_the_same(tmp_path) -> None:
    lines = [
        record_line(key, cost, target=target)
        for key in ("k1", "k2")
        for target in ("llvm", "cuda")
        for cost in (1e-3, 2e-3, 1e10)
    ]
    first = make(tmp_path, "first", [*lines, b"{bad", lines[0]])
    out = tmp_path / "logs"
    assert export_logs(first, out) == {"logs": 4, "records": 12, "disturbed": 0}
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again = make(
        tmp_path, "again", [line for data in before.values() for line in gzip.decompress(data).splitlines()]
    )
    assert content(again) == content(first) and len(content(first)) == 4
    assert export_logs(first, out)["records"] == 12  # as after a kill: the same files
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_disturbed_records_are_left_out_when_asked(tmp_path) -> None:
    root = write_toy(tmp_path / "toy", workloads=2, records=8, disturbed=3)
    assert export_logs(root, tmp_path / "all")["records"] == 16
    totals = export_logs(root, tmp_path / "some", undisturbed=True)
    assert totals == {"logs": 2, "records": 10, "disturbed": 6}
    path = min((tmp_path / "some").glob("*.json.gz"))
    kept = [parse_record(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    of_all = Dataset(root).trajectories(path.name.split(".")[0])
    assert [record.steps for record in kept] == [each.steps for each in of_all[3:]]
    assert sum(len(group.steps) for group in read([tmp_path / "some"]).values()) <= 10


def test_other_files_and_traces_are_refused(tmp_path) -> None:
    root = make(tmp_path, "first", [record_line("k1", 1e-3)])
    out = tmp_path / "logs"
    out.mkdir()
    (out / "mine.txt").write_text("")
    with pytest.raises(DatasetError, match=r"mine\.txt"):
        export_logs(root, out)
    traces = make(tmp_path, "traces", [record_line(f"{KEY_PREFIX}1", 1e-3)])
    with pytest.raises(DatasetError, match="MetaSchedule"):
        export_logs(traces, tmp_path / "none")
    assert not (tmp_path / "none").exists()
