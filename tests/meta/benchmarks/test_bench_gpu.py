"""`make bench-gpu`: one line where there is no GPU, and its path for a made-up one."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from checkout import ROOT

from benchmarks import run
from benchmarks.plan import read

TASK = "softmax"


def script(tmp_path, *arguments, says="", env=None):
    """Run scripts/bench-gpu.sh where nvidia-smi prints `says`, or fails as it does without a GPU."""
    fake = tmp_path / "nvidia-smi"
    fake.write_text(
        f"#!/bin/sh\necho '{says}'\n" if says else "#!/bin/sh\necho 'No devices found' >&2; exit 6\n"
    )
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if key not in ("GPU", "BUNDLE", "ANSOR_BUNDLE")}
    return subprocess.run(
        [str(ROOT / "scripts" / "bench-gpu.sh"), *arguments],
        env={**kept, "PATH": path, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_gpu_it_says_so_in_one_line(tmp_path) -> None:
    done = script(tmp_path, "--tasks", "representatives", env={"GPU": "RTX 4090"})
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr == "bench-gpu: no GPU on this machine (nvidia-smi lists none)\n"


def test_a_gpu_of_which_nothing_is_known_is_one_line_too(tmp_path) -> None:
    done = script(tmp_path, says="NVIDIA Something New, N/A")
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1 and "capability" in done.stderr


def simulate(out, *arguments):
    return run.main(["--tasks", TASK, "--out", str(out), "--budgets", "4", *arguments])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--methods", "meta-random,ansor", "--simulate", "model"), "without the other methods"),
        (("--methods", "meta-random", "--simulate", "no/such/folder"), "no such folder"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path, capsys, arguments, reason) -> None:
    assert simulate(tmp_path / "out.jsonl", *arguments) == 2
    assert reason in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_made_up_gpu_from_the_script_to_the_table_and_its_logs_replayed(tmp_path) -> None:
    out = tmp_path / "gpu.jsonl"
    done = script(
        tmp_path,
        *("--simulate", "model", "--tasks", TASK, "--budgets", "8", "--round-size", "4"),
        *("--timeout", "3600", "--out", str(out)),  # CUDA's intrinsics alone take half a minute of processor
        env={"GPU": "RTX 4090", "BUNDLE": "x86-meta"},
    )
    assert done.returncode == 0, done.stderr
    lines = {line["method"]: line for line in read(out)}
    assert set(lines) == {"meta-xgb", "meta-wmsched", "meta-wmsched-search", "meta-wmsched-parts"}
    for line in lines.values():
        assert line["status"] == "ok" and line["simulated"] and line["trials"] == 8
        assert json.loads(line["target"])["arch"] == "sm_89" and line["problems"] == {}
    assert "simulated" in out.with_suffix(".md").read_text() and out.with_suffix(".png").stat().st_size > 0
    # what these runs wrote down is a recorded database: replayed, nothing is better than its best
    replayed = tmp_path / "replayed.jsonl"
    target = lines["meta-xgb"]["target"]
    more = ("--methods", "meta-random", "--simulate", str(out.with_suffix("")), "--target", target)
    assert simulate(replayed, *more) == 0
    (again,) = read(replayed)
    assert again["simulated"] and again["best_seconds"] >= min(x["best_seconds"] for x in lines.values())
