"""What ``wmsched info`` tells, and the command line's way of failing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from wmsched.base.errors import BundleError, UnknownName
from wmsched.cli.main import main
from wmsched.model import bundles


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {
        "format": 1,
        "metrics": {"top1": 0.91234, "folds": [1, 2]},
        "features": [f"f{i:02}" for i in range(99)],
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "MODEL_CARD.md").write_text("# Mine")
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["wmsched", *arguments])
    try:
        return main()
    except SystemExit as stop:
        return int(stop.code or 0)


def test_a_bundle_is_told_field_by_field(bundle: Path) -> None:
    told = dict(bundles.describe(bundle))
    assert told["format"] == "1"
    assert told["metrics.top1"] == "0.9123"
    assert told["metrics.folds"] == "1, 2"
    assert told["features"].startswith("99: f00, f01, ")
    assert told["model card"].endswith("MODEL_CARD.md")


def test_shipped_bundles_are_found_by_name(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "SHIPPED", bundle.parent)
    assert bundles.shipped() == ["mine"]
    assert bundles.find("mine") == bundle
    with pytest.raises(UnknownName, match=r"'mino'.*did you mean mine"):
        bundles.find("mino")


def test_a_folder_that_is_no_bundle_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"config\.json cannot be read"):
        bundles.describe(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BundleError, match=r"config\.json cannot be read"):
        bundles.describe(tmp_path)


def test_info_on_the_command_line(bundle: Path, monkeypatch, capsys) -> None:
    assert run(monkeypatch, "info", str(bundle)) == 0
    assert "metrics.top1" in capsys.readouterr().out


def test_an_error_is_one_line_and_status_1(tmp_path: Path, monkeypatch, capsys) -> None:
    assert run(monkeypatch, "info", str(tmp_path / "none")) == 1
    said = capsys.readouterr().err
    assert said.startswith("wmsched: no bundle") and said.count("\n") == 1


@pytest.mark.parametrize("arguments", [["info", "--nope"], ["tune", "x", "--trials", "0"], ["nonsense"]])
def test_a_wrong_call_is_status_2(arguments, monkeypatch, capsys) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_unknown_task_is_told_with_the_near_names(tmp_path, monkeypatch, capsys) -> None:
    assert run(monkeypatch, "tune", "resnet51", "--log", str(tmp_path / "log.json")) == 1
    assert "resnet50" in capsys.readouterr().err
