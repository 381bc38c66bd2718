"""`wmsched-data collect` killed at random moments, as a process and for good."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pretending import make_row, records

from data_builder.collect.collect import log_name
from data_builder.read.workloads import write_rows


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_collection_ends_with_the_schedules_of_an_undisturbed_one(
    kills: int, tmp_path: Path
) -> None:
    row = make_row(32)
    write_rows(tmp_path / "w.json", [row])
    trials = max(6, 2 * kills)

    def command(out: str) -> list[str]:
        options = ["--trials", str(trials), "--mix", "1:0", "--batch", "10", "--min-repeat-ms", "1"]
        workloads = ["--workloads", str(tmp_path / "w.json"), "--out", str(tmp_path / out)]
        return [sys.executable, "-m", "data_builder.cli.main", "collect", *workloads, *options]

    begin = time.monotonic()
    subprocess.run(command("whole"), check=True, capture_output=True)
    seconds = time.monotonic() - begin
    wanted = [record.steps for record in records(tmp_path / "whole", row)]
    assert len({json.dumps(steps) for steps in wanted}) == len(wanted) == trials
    chance = random.Random(kills)
    out = tmp_path / "killed"
    log = out / "measure_records" / log_name(row)
    written: list[bytes] = []
    landed = finished = 0
    while landed < kills:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command("killed"), start_new_session=True, **quiet)
        try:
            assert process.wait(timeout=chance.uniform(0.2, 0.9) * seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            landed += 1
        lines = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
        assert lines[: len(written)] == written  # what was written stays as it is
        written = lines
        if process.returncode == 0:
            finished += 1
            assert [record.steps for record in records(out, row)] == wanted
            shutil.rmtree(out)
            written = []
    subprocess.run(command("killed"), check=True, capture_output=True)
    print(f"{kills} kills, {finished} runs that ended between them; an undisturbed one took {seconds:.0f} s")
    assert [record.steps for record in records(out, row)] == wanted  # none measured twice, none left out
