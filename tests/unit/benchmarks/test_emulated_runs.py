"""`benchmarks.run --emulate-threads`: what it refuses."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from benchmarks.options import parser
from benchmarks.run import prepare
from wmsched.base.errors import WmschedError


def refused(tmp_path, *given: str) -> str:
    options = parser("").parse_args([*given, "--out", str(tmp_path / "lines.jsonl")])
    with pytest.raises((WmschedError, ValueError)) as error:
        prepare(options, Console(quiet=True))
    return str(error.value)


@pytest.mark.parametrize("method", ["ansor-script", "meta-xgb"])
def test_what_does_not_go_through_its_runner(tmp_path, method: str) -> None:
    why = refused(tmp_path, "--methods", method, "--emulate-threads", "16")
    assert method in why and "16 cores" in why


def test_no_threads_at_all(tmp_path) -> None:
    assert "at least 1" in refused(tmp_path, "--methods", "ansor", "--emulate-threads", "-2")


def test_lines_of_another_number_of_threads(tmp_path) -> None:
    from benchmarks import machine

    line = {
        "kind": "run", "task": "resnet50/0", "method": "ansor", "budget": 16, "round_size": 16, "seed": 0,
        "status": "ok", "cpu": machine.describe()["cpu"], "emulated_threads": 16,
    }  # fmt: skip
    (tmp_path / "lines.jsonl").write_text(json.dumps(line) + "\n")
    for threads in ("0", "64"):
        why = refused(tmp_path, "--methods", "ansor", "--emulate-threads", threads)
        assert "--emulate-threads 16" in why and "another --out" in why
