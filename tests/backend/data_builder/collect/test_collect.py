"""`wmsched-data collect`: measured on this machine, resumable, nothing twice."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import tvm
from pretending import QUICK, Pretending, Refusing, Watch, make_row, records

from data_builder.base.store import locked
from data_builder.collect import collect as collecting
from data_builder.collect.collect import CollectOptions, collect, log_name, select
from data_builder.collect.measure import MeasureOptions
from data_builder.read.workloads import read_rows, write_rows
from wmsched.base.errors import DatasetError, EnvironmentProblem, LogError, UnknownName
from wmsched.toolchain.resolve import host_target

pytestmark = pytest.mark.usefixtures("processes")


def test_a_stopped_collection_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    row = make_row(32)
    first = collect([row], tmp_path, CollectOptions(trials=3, batch=2, measure=QUICK), Watch())
    assert first == {"tasks": 1, "records": 3, "measured": 3, "failed": 0, "unfinished": 0}
    log = tmp_path / "measure_records" / log_name(row)
    assert log.name == "0032_a_net.json"
    begun = log.read_bytes()
    log.write_bytes(begun + begun[:100])  # killed in the middle of a line
    watch = Watch()
    second = collect([row], tmp_path, CollectOptions(trials=6, batch=2, measure=QUICK), watch)
    assert (second["records"], second["measured"], watch.steps) == (6, 3, 3)
    assert log.read_bytes().startswith(begun)
    assert any("0032_a_net.json:4" in note for note in watch.notes)
    found = records(tmp_path, row)
    assert len({json.dumps(record.steps) for record in found}) == 6
    assert all(record.measurement.ok for record in found)
    assert {record.workload_key for record in found} == {row["workload_key"]}
    third = collect([row], tmp_path, CollectOptions(trials=6, measure=QUICK), Watch())
    assert third["measured"] == 0
    (listed,) = read_rows(tmp_path / "workloads.json.gz").values()
    assert listed["log"] == log.name and listed["target"] == host_target() and listed["layout_rewrite"] == 2


@pytest.mark.slow
def test_the_guided_part_comes_after_the_random_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Watching(collecting.Sampler):
        def next(self, count, *, guided, seed, before):
            asked.append((count, guided))
            return super().next(count, guided=guided, seed=seed, before=before)

    monkeypatch.setattr(collecting, "Sampler", Watching)
    row = make_row(48)
    options = CollectOptions(trials=9, mix=(2, 1), batch=4, cost_model="xgb", measure=QUICK)
    counts = collect([row], tmp_path, options, Watch())
    assert counts["records"] == 9
    assert asked == [(4, False), (2, False), (3, True)]
    assert len({json.dumps(record.steps) for record in records(tmp_path, row)}) == 9


def test_where_nothing_can_be_measured_nothing_is_recorded(tmp_path: Path) -> None:
    row = make_row(16)
    # A target whose code this host cannot run: LLVM has it, the linker has not.
    target = "llvm -mtriple=riscv64-linux-gnu -num-cores=2"
    foreign = CollectOptions(trials=2, mix=(1, 0), target=target, measure=QUICK)
    with pytest.raises(EnvironmentProblem, match="none of 2 schedules could be measured, nor a program that"):
        collect([row], tmp_path, foreign, Watch())
    assert records(tmp_path, row) == []
    assert collect([row], tmp_path, CollectOptions(trials=2, measure=QUICK), Watch())["failed"] == 0


def test_without_a_compiler_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm.contrib.cc.get_cc", lambda: None)
    with pytest.raises(EnvironmentProblem, match=r"needs a C\+\+ compiler"):
        collect([make_row(16)], tmp_path / "out", CollectOptions(trials=2, measure=QUICK), Watch())
    assert not (tmp_path / "out").exists()


def test_a_failed_build_is_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "Measurer", Refusing)
    row = make_row(16)
    counts = collect([row], tmp_path, CollectOptions(trials=2, batch=2, measure=QUICK), Watch())
    assert (counts["measured"], counts["failed"]) == (2, 2)
    assert [record.measurement.kind for record in records(tmp_path, row)] == ["compile_host"] * 2


def test_a_log_goes_on_with_its_target_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "Measurer", Pretending)
    row = make_row(16)
    collect([row], tmp_path, CollectOptions(trials=1, measure=QUICK), Watch())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    other = CollectOptions(trials=2, target="llvm -mtriple=x86_64-linux-gnu -num-cores=77", measure=QUICK)
    with pytest.raises(LogError, match=r"0016_a_net\.json: its records are of the target .*num-cores=77"):
        collect([row], tmp_path, other, Watch())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before
    mine = CollectOptions(trials=2, target=host_target(), measure=QUICK)
    assert collect([row], tmp_path, mine, Watch())["records"] == 2


def test_two_runs_do_not_write_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(DatasetError, match=r"another run is writing .*--out"):
        collect([make_row(16)], tmp_path, CollectOptions(trials=1, measure=QUICK), Watch())


def test_a_used_up_space_is_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm import auto_scheduler, te

    monkeypatch.setattr(collecting, "Measurer", Pretending)
    monkeypatch.setattr(collecting, "VARIANTS", 2)  # of a batch that are all known, which end it
    a = te.placeholder((2,), name="A")
    tensors = [a, te.compute((2,), lambda i: a[i] + 1.0, name="B")]
    key = str(auto_scheduler.ComputeDAG(tensors).workload_key())
    row = make_row(16, workload_key=key, tensors=json.loads(tvm.ir.save_json(tensors)))
    watch = Watch()
    counts = collect([row], tmp_path, CollectOptions(trials=10_000, batch=50, measure=QUICK), watch)
    assert 0 < counts["records"] < 100 and counts["unfinished"] == 1
    assert any("no new schedules" in note for note in watch.notes)
    found = records(tmp_path, row)
    assert len({json.dumps(record.steps) for record in found}) == len(found)


def test_two_workloads_do_not_share_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "Measurer", Pretending)
    options = CollectOptions(trials=1, measure=QUICK)
    collect([make_row(16)], tmp_path, options, Watch())
    with pytest.raises(DatasetError, match=r"0016_a_net\.json of another workload"):
        collect([make_row(24, id=16)], tmp_path, options, Watch())


def test_a_row_that_tvm_cannot_read_is_left_out_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "Measurer", Pretending)
    bare = {name: value for name, value in make_row(24).items() if name != "tensors"}
    rows = [bare, make_row(32, tensors="nonsense", layout_rewrite=0), make_row(16)]
    watch = Watch()
    counts = collect(rows, tmp_path, CollectOptions(trials=2, batch=2, measure=QUICK), watch)
    assert (counts["records"], counts["measured"]) == (2, 2)
    assert len(records(tmp_path, rows[-1])) == 2
    left = [note.partition(": left out: the tensors of its workloads row make no ") for note in watch.notes]
    assert [(name, bool(told)) for name, told, _ in left] == [
        ("0024_a_net.json", True),
        ("0032_a_net.json", True),
    ]


def test_a_workloads_file_in_the_folder_itself_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "Measurer", Pretending)
    given = tmp_path / "workloads.json.gz"
    write_rows(given, [make_row(16), make_row(24)])  # whose logs are None
    before = given.read_bytes()
    rows = select(list(read_rows(given).values()), "all")
    options = CollectOptions(trials=1, measure=QUICK)
    with pytest.raises(DatasetError, match=r"row 0 .*has the log None.*another --out"):
        collect(rows, tmp_path, options, Watch())
    assert given.read_bytes() == before
    collect(rows, tmp_path / "out", options, Watch())
    ours = tmp_path / "out" / "workloads.json.gz"  # one of an earlier run may be named, though
    again = select(list(read_rows(ours).values()), "all")
    counts = collect(again, tmp_path / "out", CollectOptions(trials=2, measure=QUICK), Watch())
    assert (counts["records"], counts["measured"]) == (4, 2)


def test_a_target_of_remote_devices_that_tvm_does_not_know_is_named(tmp_path: Path) -> None:
    remote = MeasureOptions(rpc="127.0.0.1:9190", key="board")
    options = CollectOptions(trials=1, target="nonsense", measure=remote)
    with pytest.raises(UnknownName, match="--target 'nonsense'"):
        collect([make_row(16)], tmp_path, options, Watch())


def test_time_is_shared_between_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []

    def take(self, measurer, watch):
        turns.append(self.row["id"])
        self.count += self.options.batch
        return self.options.batch, 0

    monkeypatch.setattr(collecting._Turn, "take", take)
    rows = [make_row(16), make_row(24), make_row(32)]
    collect(rows, tmp_path, CollectOptions(trials=6, batch=3), Watch())
    assert turns == [16, 24, 32, 16, 24, 32]
    clock = iter([0.0, 1.0, 200.0])
    monkeypatch.setattr(collecting.time, "monotonic", lambda: next(clock))
    counts = collect(rows, tmp_path / "short", CollectOptions(trials=6, batch=3, minutes=2), Watch())
    assert turns[6:] == [16] and counts["unfinished"] == 3


@pytest.mark.parametrize(
    ("spec", "ids"),
    [("all", [0, 1, 2, 3]), ("1", [1]), ("1-2,0", [0, 1, 2]), ("log", [2]), ("nolog", [0, 1, 3]),
     ("resnet", [1, 2]), ("dense", [3]), (" 0 , dense ", [0, 3])],
)  # fmt: skip
def test_tasks_are_chosen(spec: str, ids: list[int]) -> None:
    rows = [
        {"network": "bert", "desc": "softmax"}, {"network": "resnet", "desc": "conv"},
        {"network": "resnet", "desc": "pool", "log": "x"}, {"network": "bert", "desc": "dense"},
    ]  # fmt: skip
    assert [row["id"] for row in select(rows, spec)] == ids
    with pytest.raises(UnknownName, match="'transformer' chooses none of the 4"):
        select(rows, f"{spec},transformer")


def test_a_full_disk_stops_collecting_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "Measurer", Pretending)
    row = make_row(32)
    options = CollectOptions(trials=6, mix=(1, 0), batch=4)
    collect([row], tmp_path / "whole", options, Watch())
    log = tmp_path / "full" / "measure_records" / log_name(row)
    real, room = os.fsync, [4]  # for the workloads file, and for two records

    def fsync(file: int) -> None:
        room[0] -= 1
        if room[0] == 0:
            with open(log, "r+b") as stream:  # the disk took half of the line
                stream.truncate(log.stat().st_size - 20)
            raise OSError(errno.ENOSPC, "No space left on device", str(log))
        real(file)

    monkeypatch.setattr(collecting.os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        collect([row], tmp_path / "full", options, Watch())
    kept = log.read_bytes().splitlines()[:2]
    watch = Watch()
    collect([row], tmp_path / "full", options, watch)
    assert any("moved aside" in note for note in watch.notes)
    assert log.read_bytes().splitlines()[:2] == kept
    whole, full = ([record.steps for record in records(tmp_path / name, row)] for name in ("whole", "full"))
    assert full == whole and len(full) == 6


def test_names_in_a_workloads_file_lead_nowhere(tmp_path: Path) -> None:
    for name in ("../../etc/cron.d/x", "/etc/passwd", "a\x00b", "..", "\u202egnp"):
        file = log_name(make_row(16, network=name))
        assert file.startswith("0016_") and Path(file).name == file and not set(file) & set("\x00\u202e/")
