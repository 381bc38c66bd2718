"""What `wmsched score` writes: whole, at the end, and never over what it reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from wmsched.base.errors import LogError
from wmsched.cli.main import app
from wmsched.cli.score import TaskScores


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The logs that are scored, each to two programs; one called "bad" cannot be."""
    logs: list[Path] = []

    def score_log(log, model, *, workloads=None, bad=None):
        logs.append(log)
        if log.name == "bad":
            raise LogError("no record in it", place=str(log))
        scores = np.array([0.25, 0.75], np.float32)
        yield TaskScores(name="a", known=True, lines=[1, 3], scores=scores, seconds=np.full(2, np.nan))

    monkeypatch.setattr("wmsched.cli.score.score_log", score_log)
    monkeypatch.setattr("wmsched.model.world_model.WorldModel.from_pretrained", lambda name: None)
    for name in ("log", "bad"):
        (tmp_path / name).write_text(name)
    return logs


def score(*arguments: object):
    return CliRunner().invoke(app, ["score", *map(str, arguments)])


def test_scores_take_the_place_of_an_older_file(scored, tmp_path: Path) -> None:
    out = tmp_path / "scores"
    for _ in range(2):
        assert score(tmp_path / "log", "--out", out).exit_code == 0
        rows = [json.loads(row) for row in out.read_text().splitlines()]
        assert rows == [
            {"line": 1, "task": "a", "score": 0.25, "rank": 2},
            {"line": 3, "task": "a", "score": 0.75, "rank": 1},
        ]
    assert score(tmp_path / "log").exit_code == 0  # and none are written without --out
    assert {path.name for path in tmp_path.iterdir()} == {"log", "bad", "scores"}


def test_what_cannot_be_scored_leaves_an_older_file_as_it_is(scored, tmp_path: Path) -> None:
    out = tmp_path / "scores"
    out.write_text("of yesterday")
    assert isinstance(score(tmp_path / "bad", "--out", out).exception, LogError)
    assert out.read_text() == "of yesterday"
    assert {path.name for path in tmp_path.iterdir()} == {"log", "bad", "scores"}


def test_a_file_that_cannot_be_is_told_before_anything_is_scored(scored, tmp_path: Path) -> None:
    found = score(tmp_path / "log", "--out", tmp_path / "none" / "scores").exception
    assert isinstance(found, FileNotFoundError) and found.filename.endswith("none/scores")
    assert scored == []


def test_what_is_read_is_not_written(scored, tmp_path: Path) -> None:
    log, link, rows = tmp_path / "log", tmp_path / "link", tmp_path / "rows.json"
    link.symlink_to(log)
    rows.write_text("[]")
    for arguments in ((log, "--out", log), (log, "--out", link), (log, "--workloads", rows, "--out", rows)):
        found = score(*arguments)
        assert found.exit_code == 2 and "--out" in found.output
    assert log.read_text() == "log" and rows.read_text() == "[]" and scored == []
