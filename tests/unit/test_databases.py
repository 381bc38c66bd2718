"""MetaSchedule's databases among other files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from test_dataset import record_line

from data_builder.meta.database import RECORDS, WORKLOADS, databases
from wmsched.errors import DatasetError


def test_a_folder_with_records_of_both_schedulers_is_refused(tmp_path: Path) -> None:
    for name, text in ((WORKLOADS, ""), (RECORDS, "[0,[[[],[]],[1],null,[]]]\n"), ("names.json", "{}")):
        (tmp_path / name).write_text(text)
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
    disk = tmp_path / "disk"
    disk.mkdir()
    for name in (WORKLOADS, RECORDS):
        (disk / name).write_text("")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "db").symlink_to(disk, target_is_directory=True)
    assert databases([tmp_path / "all"]) == [tmp_path / "all" / "db"]
