"""The dataset directory without TVM: what is written is read back, and damage is told."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest
from dataset_files import HASHES, KEY, STEPS, TEXTS, change_rows, quiet, record_line, write_dataset

from data_builder.base.store import TableWriter, write_bytes
from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.build.record_selection import chosen
from data_builder.derive.stats import workload_stats
from data_builder.derive.validate import problems
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import (
    STATES,
    Dataset,
    group_id,
    ranked,
    trajectories_path,
)
from wmsched.schedules.steps import decode_steps


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_what_was_written_is_read_back(version: int, tmp_path: Path) -> None:
    name = write_dataset(tmp_path, version=version)
    dataset = Dataset(tmp_path)
    (workload,) = dataset.workloads()
    assert workload.id == name and (workload.key, workload.target, workload.hardware) == (
        KEY,
        "llvm",
        (2, 64),
    )
    assert dataset.disturbed(name) == [None, None]
    assert dataset.initial(workload.id) == "s0"
    assert dataset.states(workload.id) == dict(zip(HASHES, TEXTS, strict=True))
    good, failed = dataset.trajectories(workload.id)
    assert good.measurement.seconds == pytest.approx(2e-3)
    assert good.steps == STEPS and good.states == tuple(HASHES)
    assert good.action_texts == tuple(action.text for action in decode_steps(STEPS, workload.stages))
    assert failed.measurement.kind == "compile_host" and math.isnan(failed.measurement.seconds)
    assert failed.states == ()
    assert dict(dataset.iter_trajectories()) == {workload.id: [good, failed]}
    assert dataset.fingerprint() == {
        "workloads": [hashlib.sha256(KEY.encode()).hexdigest()], "records": 2, "sources": ["ab"],
    }  # fmt: skip
    assert list(problems(tmp_path)) == []


def test_stats_count_what_failed_and_how_far_times_spread(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    (row,) = workload_stats(Dataset(tmp_path))
    assert (row.records, row.errors, row.replayed, row.states) == (2, {"compile_host": 1}, 1, 3)
    assert (row.steps_mean, row.steps_max) == (2.0, 2)
    assert row.best == row.median == row.worst == pytest.approx(2e-3)


def test_missing_unfinished_and_newer_directories_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="make one with"):
        Dataset(tmp_path / "gone")
    with pytest.raises(DatasetError, match="run the same"):
        Dataset(tmp_path)
    for text in ("[]", "{", '"x"', "[" * 100_000):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(DatasetError, match="not a dataset manifest"):
            Dataset(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format_version": 99}')
    with pytest.raises(DatasetError, match="99, this wmsched reads 1 to 4"):
        Dataset(tmp_path)
    assert list(problems(tmp_path)) == [str(_error(tmp_path))]


def _error(root: Path) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        Dataset(root)
    return caught.value


def test_an_unknown_workload_is_named(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    with pytest.raises(DatasetError, match="no workload 'nope'"):
        Dataset(tmp_path).trajectories("nope")


def _edit(**values):
    return lambda rows: [{**rows[0], **values}, *rows[1:]]


DAMAGE = {
    "states": {
        "another text": (_edit(text="x"), "another text than its hash"),
        "a state lost": (lambda rows: rows[:-1], "1 of its states are missing"),
        "s0 lost": (lambda rows: rows[1:], "initial state"),
    },
    "trajectories": {
        "a record lost": (lambda rows: rows[1:], "records is 2, the files hold 1"),
        "all lost": (lambda rows: [], "it has no records"),
        "a state too few": (_edit(states=HASHES[:2]), "2 steps and 2 states"),
        "another beginning": (_edit(states=[HASHES[1], *HASHES[1:]]), "begins in"),
        "texts of another codec": (_edit(action_texts=["x", "y"]), "words its actions otherwise"),
        "a text too few": (_edit(action_texts=["x"]), "2 steps and 1 action texts"),
        "steps of no schedule": (_edit(steps='[["ZZ"]]'), "unknown code 'ZZ'"),
        "steps of no program": (_edit(steps='[["AN", 0, 300, 3]]'), "cannot be followed"),
        "steps of no JSON": (_edit(steps="["), "workload"),
        "seconds of another": (_edit(seconds=math.nan), "contradicts"),
        "of another workload": (_edit(workload_id="x"), "holds records of x"),
        "another error": (_edit(error_no=4, seconds=math.nan), "errors_by_kind"),
        "another source": (_edit(source="other"), "source other of 1 records is missing"),
    },
    "workloads": {
        "another key": (_edit(workload_key="x"), "not that of its key"),
        "a workload lost": (lambda rows: [], "of no workload in"),
    },
}


@pytest.mark.parametrize(
    ("table", "damage"), [(table, damage) for table in DAMAGE for damage in DAMAGE[table]]
)
def test_validate_finds(table: str, damage: str, tmp_path: Path) -> None:
    name = write_dataset(tmp_path)
    change, says = DAMAGE[table][damage]
    path = "workloads.parquet" if table == "workloads" else f"{table}/{name}.parquet"
    change_rows(tmp_path / path, change)
    found = list(problems(tmp_path))
    assert any(says in problem for problem in found), found
    assert f"{path}: another content than its checksum in manifest.json says" in found


def test_validate_goes_on_after_steps_that_no_program_has(tmp_path: Path) -> None:
    name = write_dataset(tmp_path)
    nowhere = {"steps": '[["AN", 0, 300, 3]]', "action_texts": ["x"]}  # a loop that is not there
    change_rows(
        trajectories_path(tmp_path, name),
        lambda rows: [{**rows[0], **nowhere}, {**rows[1], "action_texts": ["x"]}],
    )
    found = list(problems(tmp_path))
    assert sum("log.json:1: " in problem for problem in found) == 1
    assert any("log.json:2: 2 steps and 1 action texts" in problem for problem in found), found
    assert any("another content than its checksum" in problem for problem in found)


def test_validate_finds_missing_and_foreign_files(tmp_path: Path) -> None:
    name = write_dataset(tmp_path)
    (tmp_path / "states" / "stray.parquet").write_bytes(b"x")
    (tmp_path / "trajectories" / f"{name}.parquet").write_bytes(b"not parquet")
    found = "\n".join(problems(tmp_path))
    assert "states/stray: of no workload" in found
    assert f"{name}.parquet" in found
    assert "states/stray.parquet: not in the manifest's list" in found


def test_half_written_files_never_get_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(RuntimeError), TableWriter(path, STATES) as table:
        table.add({"hash": "h", "text": "t"})
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    write_bytes(path, b"old")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(("count", "keep"), [(40, 12), (13, 12), (1000, 7), (12, 12), (3, 12)])
def test_the_chosen_records_are_spread_evenly_and_always_the_same(count: int, keep: int) -> None:
    picks = sorted(chosen(count, keep, "id"))
    assert picks == sorted(chosen(count, keep, "id"))
    assert len(picks) == min(count, keep) and picks[0] >= 0 and picks[-1] < count
    for slot, pick in enumerate(picks[:keep] if count > keep else []):
        assert slot * count // keep <= pick < (slot + 1) * count // keep
    assert len(chosen(count, 0, "id")) == count
    assert len({tuple(sorted(chosen(1000, 7, str(seed)))) for seed in range(9)}) == 9


def test_a_log_without_its_graphs_builds_without_tvm(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    lines = [
        record_line("k1", 1e-3), record_line("k2", 1e10, 7), b"{broken", record_line("k1", 2e-3),
        record_line("k1", 0.0), record_line("k1", 1e-3), record_line("k1", 1e-3, target="cuda"),
    ]  # fmt: skip
    log.write_bytes(b"\n".join(lines))
    report = quiet()
    manifest = build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), report)
    totals = manifest["totals"]
    assert (totals["lines"], totals["records"], totals["bad"], totals["duplicates"]) == (7, 5, 1, 1)
    assert totals["errors_by_kind"] == {"ok": 3, "run_timeout": 1, "unmeasured": 1}
    assert totals["lines"] == totals["records"] + totals["bad"] + totals["duplicates"]
    assert totals["excluded"] == 0
    places = sorted(text.split(": ")[0].rpartition(":")[2] for text in report.problems)
    assert places == ["3", "6"]
    assert sorted((tmp_path / "ds" / "problems.txt").read_text().splitlines()) == sorted(report.problems)
    assert "3 of 3 workloads have no compute DAG" in "".join(report.notes)
    dataset = Dataset(tmp_path / "ds")
    # Two machines: two rank groups of k1, one key in the fingerprint.
    counts = {(w.key, w.target): len(dataset.trajectories(w.id)) for w in dataset.workloads()}
    assert counts == {("k1", "llvm"): 3, ("k1", "cuda"): 1, ("k2", "llvm"): 1}
    assert len(dataset.fingerprint()["workloads"]) == 2
    with pytest.raises(DatasetError, match="was not in --workloads"):
        dataset.initial(dataset.workload_ids[0])
    assert list(problems(tmp_path / "ds")) == []
    again = build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), report)
    assert again == manifest
    for other in (BuildOptions(states_per_workload=3), BuildOptions()):
        log.write_bytes(log.read_bytes() + b"\n")
        with pytest.raises(DatasetError, match="choose another --out"):
            build([str(log)], tmp_path / "ds", other, report)


def test_excluded_workloads_are_left_out_and_counted(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(b"\n".join(record_line(key, 1e-3 * n) for n in range(1, 4) for key in ("k1", "k2")))
    options = BuildOptions(jobs=1, exclude=frozenset({"k2", "k9"}))
    totals = build([str(log)], tmp_path / "ds", options, quiet())["totals"]
    assert (totals["lines"], totals["records"], totals["excluded"]) == (6, 3, 3)
    assert [workload.key for workload in Dataset(tmp_path / "ds").workloads()] == ["k1"]
    with pytest.raises(DatasetError, match="choose another --out"):
        build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), quiet())


def test_a_directory_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_bytes(record_line("k", 1.0))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(DatasetError, match="not empty"):
        build([str(tmp_path / "log.json")], tmp_path / "mine", BuildOptions(), quiet())
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_directory_without_logs_says_what_logs_are_called(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"\.json"):
        build([str(tmp_path)], tmp_path / "ds", BuildOptions(), quiet())


def test_a_published_log_of_another_machine_builds_without_its_graphs(
    shared_data: Path, tmp_path: Path
) -> None:
    log = shared_data / "tlcbench-t4" / "bert-B1-float32.json"
    totals = build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), quiet())["totals"]
    assert totals["records"] == totals["lines"] == 100 and totals["bad"] == 0
    dataset = Dataset(tmp_path / "ds")
    texts = {text for _, rows in dataset.iter_trajectories() for row in rows for text in row.action_texts}
    assert len(texts) > 50 and all(texts)
    assert {workload.stages for workload in dataset.workloads()} == {()}
    assert list(problems(tmp_path / "ds")) == []


def test_what_nobody_has_measured_is_not_ranked(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    lines = [record_line("k1", cost, error) for cost, error in ((1e-3, 0), (0.0, 0), (1e10, 2))]
    log.write_bytes(b"\n".join(lines))
    build([str(log)], tmp_path / "ds", BuildOptions(jobs=1), quiet())
    dataset = Dataset(tmp_path / "ds")
    (name,) = dataset.workload_ids
    assert len(dataset.trajectories(name)) == 3
    for disturbed in (False, True):
        kept, left_out = ranked(dataset, name, disturbed=disturbed)
        assert [one.measurement.kind for one in kept] == ["ok", "compile_host"] and left_out == 0


def test_threads_that_a_target_does_not_tell_part_rank_groups() -> None:
    one, two = (group_id(KEY, "llvm", (2, 64), threads) for threads in (0, 2))
    assert one == group_id(KEY, "llvm", (2, 64)) != two
