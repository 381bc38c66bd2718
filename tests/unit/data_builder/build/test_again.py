"""The same build command a second time: what it takes for its logs, and for what it has read."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from dataset_files import quiet, record_line

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from wmsched.base.errors import DatasetError


def test_a_dataset_in_the_folder_of_its_logs_is_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_bytes(record_line("k1", 1e-3))
    first = build([str(tmp_path)], tmp_path / "ds", BuildOptions(jobs=1), quiet())
    report = quiet()
    again = build([str(tmp_path)], tmp_path / "ds", BuildOptions(jobs=1), report)
    assert again == first and "complete already" in report.notes[-1]


def test_standard_input_is_not_taken_for_what_it_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stdin(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    stdin(record_line("k1", 1e-3))
    totals = build(["-"], tmp_path / "ds", BuildOptions(jobs=1), quiet())["totals"]
    assert totals["records"] == 1
    stopped = tmp_path / "stopped" / ".build" / "scan.json"
    stopped.parent.mkdir(parents=True)
    stopped.write_text("{}")
    stdin(record_line("k2", 1e-3))
    for out in (tmp_path / "ds", tmp_path / "stopped"):
        with pytest.raises(DatasetError, match=r"standard input .* another --out, or remove"):
            build(["-"], out, BuildOptions(jobs=1), quiet())
