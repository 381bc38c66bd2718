"""What a change must not spoil: how start, candidates, golden scores and the suite are measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.plan import read_all
from benchmarks.regressions import candidates, golden, start, suite
from benchmarks.scoreboard import regressions

HEAVY = ("wmsched.schedules.traces", "wmsched.relax.importers.load", "numpy", "pyarrow", "torch", "tvm")


def test_help_imports_nothing_that_only_a_command_needs() -> None:
    code = f"import sys, wmsched.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_start_is_timed_in_turns_and_a_failure_is_named() -> None:
    found = start.seconds_of({"a": (sys.executable, "-c", "pass"), "b": (sys.executable, "-c", "pass")}, 2)
    assert {name: len(turns) for name, turns in found.items()} == {"a": 2, "b": 2}
    assert all(0 < turn < 60 for turns in found.values() for turn in turns)
    with pytest.raises(ValueError, match="ended with 3: some reason"):
        start.seconds_of(
            {"a": (sys.executable, "-c", "import sys; sys.stderr.write('some reason'); sys.exit(3)")}, 1
        )


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def checkout_of(folder: Path, script: str) -> Path:
    """A repository whose suite is `script`, with an untracked file and an uncommitted change."""
    (folder / ".ci").mkdir(parents=True)
    (folder / suite.SUITE).write_text(script)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "suite")
    (folder / "untracked").write_text("")
    (folder / suite.SUITE).write_text("exit 9\n")
    return folder


@pytest.mark.parametrize("code", [0, 5])
def test_the_suite_of_a_clean_clone_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    script = f'test ! -e untracked && test -z "${{PYTHONPATH:-}}" && sleep 0.2 && exit {code}\nexit 8\n'
    checkout, out = checkout_of(tmp_path / "checkout", script), tmp_path / "results" / regressions.SUITE
    assert suite.main(["--checkout", str(checkout), "--out", str(out)]) == code
    (line,) = read_all([out])
    assert line["rc"] == code and 0.2 <= line["seconds"] < 60 and line["cores"] >= 1
    assert line["commit"] == git(checkout, "rev-parse", "--short=12", "HEAD")
    if code:
        with pytest.raises(ValueError, match="ended with 5"):
            suite.seconds([line])
    else:
        assert suite.seconds([line]) == line["seconds"]


def test_a_suite_that_takes_too_long_ends(tmp_path: Path) -> None:
    outcome = suite.run(checkout_of(tmp_path / "checkout", "sleep 60\n"), tmp_path, limit=0.3)
    assert outcome["rc"] == 124 and outcome["seconds"] < 30


def test_what_is_no_checkout_writes_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "lines.jsonl"
    assert suite.main(["--checkout", str(tmp_path), "--out", str(out)]) == 2
    assert "git clone" in capsys.readouterr().err and not out.exists()


def test_rounds_of_candidates_take_turns_and_go_on_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, int]] = []

    def rate(checkout: Path, scheduler: str, caches: Path, *, repeats: int) -> dict:
        asked.append((checkout.name, scheduler, repeats))
        assert caches.name == ("now" if checkout == candidates.ROOT else "before")
        return {"candidates": 10, "rate": 90.0 if checkout == candidates.ROOT else 100.0, "scores": "same"}

    monkeypatch.setattr(candidates, "rate", rate)
    monkeypatch.setattr(candidates, "commit_of", lambda checkout: f"commit-of-{checkout.name}")
    before, out = tmp_path / "before", tmp_path / "lines.jsonl"
    command = ["--before", str(before), "--out", str(out), "--repeats", "3", "--schedulers", "meta"]
    assert candidates.main([*command, "--rounds", "2"]) == 0
    own = candidates.ROOT.name
    assert asked == [
        (own, "meta", 0), ("before", "meta", 0),
        ("before", "meta", 3), (own, "meta", 3), (own, "meta", 3), ("before", "meta", 3),
    ]  # fmt: skip
    asked.clear()
    assert candidates.main([*command, "--rounds", "3"]) == 0
    assert [repeats for _, _, repeats in asked] == [0, 0, 3, 3]
    lines = read_all([out])
    assert [line["round"] for line in lines] == [0, 1, 2]
    assert candidates.over_before(lines, "meta") == (0.9, 0.9, 0.9)
    with pytest.raises(ValueError, match="no round of ansor"):
        candidates.over_before(lines, "ansor")


def test_another_checkouts_wmsched_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"wmsched is imported from .*, not from"):
        candidates.rate(tmp_path, "ansor", tmp_path, repeats=0)


def test_bundles_count_only_with_every_margin_equal() -> None:
    lines = [
        {"kind": "golden", "bundle": "a", "margins": 60, "equal": 59},
        {"kind": "golden", "bundle": "b", "margins": 60, "equal": 60},
        {"kind": "golden", "bundle": "a", "margins": 60, "equal": 60},
        {"kind": "golden", "bundle": "c", "margins": 0, "equal": 0},
    ]
    assert golden.bundles(lines) == 2
    with pytest.raises(ValueError, match="no bundle"):
        golden.bundles([])
