"""`wmsched-data collect` killed at random moments, as a process and for good."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_collect import make_row, records

from data_builder.collect import log_name
from data_builder.workloads import write_rows


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, 20])
def test_a_killed_collection_ends_with_the_schedules_of_an_undisturbed_one(
    kills: int, tmp_path: Path
) -> None:
    row = make_row(32)
    write_rows(tmp_path / "w.json", [row])
    trials = 5 * kills

    def command(out: str) -> list[str]:
        options = ["--trials", str(trials), "--mix", "1:0", "--batch", "10", "--min-repeat-ms", "1"]
        workloads = ["--workloads", str(tmp_path / "w.json"), "--out", str(tmp_path / out)]
        return [sys.executable, "-m", "data_builder.cli", "collect", *workloads, *options]

    begin = time.monotonic()
    subprocess.run(command("whole"), check=True, capture_output=True)
    seconds = time.monotonic() - begin
    chance = random.Random(kills)
    log = tmp_path / "killed" / "measure_records" / log_name(row)
    written: list[bytes] = []
    for _ in range(kills):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command("killed"), start_new_session=True, **quiet)
        time.sleep(chance.uniform(0.2, 0.6) * seconds)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if log.exists():
            lines = [line for line in log.read_bytes().split(b"\n")[:-1] if line]
            assert lines[: len(written)] == written  # what was written stays as it is
            written = lines
    subprocess.run(command("killed"), check=True, capture_output=True)
    whole, killed = (
        [record.steps for record in records(tmp_path / name, row)] for name in ("whole", "killed")
    )
    assert killed == whole and len(whole) == trials
    assert len({json.dumps(steps) for steps in killed}) == trials  # none measured twice
