"""Datasets made of datasets keep machines apart, count every record once, and leak nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from dataset_files import HASHES, change_rows, quiet, record_line, write_dataset
from merged_datasets import accounted, counts, make

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.derive.merge import merge
from data_builder.derive.validate import problems
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import Dataset, trajectories_path
from wmsched.schedules.traces import KEY_PREFIX

XEON, EPYC = "llvm -mcpu=sapphirerapids", "llvm -mcpu=znver4"


def test_one_workload_on_two_machines_stays_in_two_rank_groups(tmp_path: Path) -> None:
    a = make(tmp_path, "a", [record_line("k1", 1e-3 * n, target=XEON) for n in (1, 2, 3)] + [b"{broken"])
    b = make(tmp_path, "b", [record_line(key, 2e-3, target=EPYC) for key in ("k1", "k2")])
    merge([a, b], tmp_path / "c", print)
    assert counts(tmp_path / "c") == {("k1", XEON): 3, ("k1", EPYC): 1, ("k2", EPYC): 1}
    assert list(problems(tmp_path / "c")) == []
    assert accounted(tmp_path / "c")
    merged = Dataset(tmp_path / "c")
    assert merged.manifest["totals"]["lines"] == 6 and merged.manifest["totals"]["bad"] == 1
    wanted = sorted(hashlib.sha256(key).hexdigest() for key in (b"k1", b"k2"))
    assert merged.fingerprint()["workloads"] == wanted  # a leak of either key is found, once each
    assert merged.fingerprint()["records"] == 5
    assert "log.json:4: not JSON" in (tmp_path / "c" / "problems.txt").read_text()


def test_the_same_machine_becomes_one_group_without_its_repetitions(tmp_path: Path) -> None:
    lines = [record_line("k1", 1e-3 * n) for n in (1, 2, 3)]
    a, b = make(tmp_path, "a", lines), make(tmp_path, "b", [*lines[1:], record_line("k1", 9e-3)])
    merge([a, b], tmp_path / "c", print)
    assert counts(tmp_path / "c") == {("k1", "llvm"): 4}
    totals = Dataset(tmp_path / "c").manifest["totals"]
    assert (totals["lines"], totals["records"], totals["duplicates"]) == (6, 4, 2)
    assert accounted(tmp_path / "c")
    (name,) = Dataset(tmp_path / "c").workload_ids
    sources = {source for source, _ in Dataset(tmp_path / "c").sources(name)}
    assert sources == {str(tmp_path / "a-log" / "log.json"), str(tmp_path / "b-log" / "log.json")}
    # Merged again with one of its parts, nothing is new and the part's log keeps a name of its own.
    merge([tmp_path / "c", a], tmp_path / "d", print)
    assert counts(tmp_path / "d") == {("k1", "llvm"): 4}
    assert accounted(tmp_path / "d") and list(problems(tmp_path / "d")) == []
    paths = [entry["path"] for entry in Dataset(tmp_path / "d").manifest["sources"]]
    assert len(set(paths)) == 3 and f"{tmp_path / 'a-log' / 'log.json'}#2" in paths


def test_a_part_with_the_program_speaks_for_one_without(tmp_path: Path) -> None:
    old = tmp_path / "old"
    key_log = tmp_path / "new-log.json"
    name = write_dataset(old, version=1)
    whole = Dataset(old).workload(name)
    line = record_line(whole.key, 5e-3).replace(b"[2, 64, 64, 0, 0, 0, 0, 0]", b"[2, 64]")
    key_log.write_bytes(line)
    build([str(key_log)], tmp_path / "new", BuildOptions(jobs=1), quiet())
    for order, out in (([tmp_path / "new", old], "c"), ([old, tmp_path / "new"], "d")):
        merge(order, tmp_path / out, print)
        assert list(problems(tmp_path / out)) == []  # actions worded by the program's stages, all of them
        dataset = Dataset(tmp_path / out)
        (workload,) = dataset.workloads()
        assert workload.stages == whole.stages and workload.network == "net"
        assert dataset.initial(workload.id) == "s0"
        assert len(dataset.trajectories(workload.id)) == 3
        assert dataset.version == 4


def test_what_cannot_be_merged_is_refused_and_leaves_no_dataset(tmp_path: Path) -> None:
    a = make(tmp_path, "a", [record_line("k1", 1e-3)])
    with pytest.raises(DatasetError, match="named twice"):
        merge([a, tmp_path / "." / "a"], tmp_path / "c", print)
    with pytest.raises(DatasetError, match="holds a dataset already"):
        merge([a], a, print)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(DatasetError, match="not empty"):
        merge([a], tmp_path / "mine", print)
    b = make(tmp_path, "b", [record_line("k2", 1e-3)])
    (name,) = Dataset(b).workload_ids
    path = b / "trajectories" / f"{name}.parquet"
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(DatasetError, match=f"{name}.parquet"):
        merge([a, b], tmp_path / "c", print)
    with pytest.raises(DatasetError, match="has not finished"):
        Dataset(tmp_path / "c")
    path.write_bytes(good)
    merge([a, b], tmp_path / "c", print)  # the same command again
    assert list(problems(tmp_path / "c")) == []


def test_a_repeated_measurement_has_the_states_of_the_part_that_replayed_it(tmp_path: Path) -> None:
    for root in ("a", "b"):
        name = write_dataset(tmp_path / root)
    path = trajectories_path(tmp_path / "a", name)
    change_rows(path, lambda rows: [{**row, "states": []} for row in rows])
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c", print)
    records = Dataset(tmp_path / "c").trajectories(name)
    assert [record.states for record in records] == [tuple(HASHES)] * 2
    assert Dataset(tmp_path / "c").manifest["totals"]["replayed"] == 2
    assert list(problems(tmp_path / "c")) == [] and accounted(tmp_path / "c")


def test_records_of_two_schedulers_are_not_merged(tmp_path: Path) -> None:
    a = make(tmp_path, "a", [record_line("k1", 1e-3)])
    b = make(tmp_path, "b", [record_line(f"{KEY_PREFIX}1", 1e-3)])
    with pytest.raises(DatasetError, match=r"b, workload .* is of MetaSchedule and .*a, workload"):
        merge([a, b], tmp_path / "c", print)
    assert not (tmp_path / "c").exists()
