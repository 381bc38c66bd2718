"""MetaSchedule's databases among other files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from dataset_files import quiet, record_line

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.read.databases import (
    RECORDS,
    WORKLOADS,
    databases,
    parse_line,
    read_modules,
    read_records,
)
from wmsched.base.errors import DatasetError, LogError


def make_database(folder: Path) -> Path:
    """A database with a record of no program, which nobody reads here."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WORKLOADS).write_text("")
    (folder / RECORDS).write_text("[0,[[[],[]],[1],null,[]]]\n")
    return folder


def test_a_folder_with_records_of_both_schedulers_is_refused(tmp_path: Path) -> None:
    make_database(tmp_path)
    (tmp_path / "names.json").write_text("{}")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "search.log").write_text("[INFO] not a record\n" * 3)  # MetaSchedule's own
    assert databases([tmp_path]) == [tmp_path]
    log = tmp_path / "ansor" / "a.json.gz"
    log.parent.mkdir()
    log.write_bytes(gzip.compress(record_line("k", 1.0)))
    with pytest.raises(
        DatasetError, match=r"MetaSchedule database, .*AutoScheduler, .*a\.json\.gz: .*by their"
    ):
        databases([tmp_path])
    assert databases([tmp_path / RECORDS]) == [tmp_path]


def test_a_database_behind_a_link_is_found(tmp_path: Path) -> None:
    disk = make_database(tmp_path / "disk")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "db").symlink_to(disk, target_is_directory=True)
    assert databases([tmp_path / "all"]) == [tmp_path / "all" / "db"]


def test_a_databases_file_means_that_one_and_a_folder_all_below_it(tmp_path: Path) -> None:
    above, below = make_database(tmp_path / "a"), make_database(tmp_path / "a" / "b")
    assert databases([above]) == [above, below]
    for name in (WORKLOADS, RECORDS):
        assert databases([above / name]) == [above]
    assert databases([above / RECORDS, above]) == [above, below]


def test_a_gzipped_database_is_one(tmp_path: Path) -> None:
    folder, workload = make_database(tmp_path / "db"), b'["1","module"]\n'
    for name, text in ((WORKLOADS, workload), (RECORDS, (folder / RECORDS).read_bytes())):
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(text))
        assert databases([folder / f"{name}.gz"] if name == RECORDS else [folder / RECORDS]) == [folder]
    assert databases([tmp_path]) == [folder]
    assert read_modules(folder) == {0: ["1", "module"]}
    assert [(number, problem) for number, _, problem in read_records(folder)] == [(1, "")]
    (folder / WORKLOADS).write_text("")  # a plain one counts
    assert read_modules(folder) == {}


@pytest.mark.parametrize("name", [WORKLOADS, RECORDS])
def test_a_named_file_that_is_not_there_is_said(name: str, tmp_path: Path) -> None:
    make_database(tmp_path / "db" / "below")
    with pytest.raises(DatasetError, match=rf"no file .*db.{name}: name the folder"):
        databases([tmp_path / "db" / name])
    (tmp_path / "db" / WORKLOADS).touch()
    with pytest.raises(DatasetError, match=rf"no file .*db.{RECORDS}: name the folder"):
        databases([tmp_path / "db" / WORKLOADS])


def test_a_database_whose_name_no_dataset_can_hold_is_refused(tmp_path: Path) -> None:
    make_database(tmp_path / os.fsdecode(b"caf\xe9"))
    with pytest.raises(LogError, match=r"its name is not UTF-8.*rename it"):
        databases([tmp_path])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (BuildOptions(drop_aliased=True), "--drop-aliased is for AutoScheduler's logs"),
        (BuildOptions(dask="tcp://127.0.0.1:9"), "--dask is for AutoScheduler's logs"),
        (BuildOptions(exclude=frozenset(['["0123", [8, 8]]'])), r"--exclude has 1 keys .*\[\"tir\","),
    ],
)
def test_what_would_do_nothing_to_a_database_is_refused(
    options: BuildOptions, says: str, tmp_path: Path
) -> None:
    make_database(tmp_path / "db")
    with pytest.raises(DatasetError, match=says):
        build([str(tmp_path / "db")], tmp_path / "ds", options, quiet())
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("depth", [300, 900, 1000])
def test_a_line_that_is_nested_too_deeply_is_no_record(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    for line in (
        b'[0,[[[["Annotate",["b0",' + deep + b'],["x"],[]]],[]],[0.5],null,[]]]',
        b'[0,[[[],[]],[0.5],{"kind":' + deep + b"},[]]]",
        b"[" + deep + b",[[[],[]],[0.5],null,[]]]",
    ):
        with pytest.raises(LogError, match="nested too deeply"):
            parse_line(line)
