"""``wmsched tune`` as a user runs it: a process of its own, real measurements, kills and half-written
logs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from checkout import ROOT

from wmsched.base.files import locked
from wmsched.schedules.log_file import tally
from wmsched.schedules.steps import parse_record
from wmsched.toolchain import resolve

TASK = "gpt2/8"  # the mean of a layer norm: small, so that a candidate is measured in a moment

pytestmark = pytest.mark.skipif(
    resolve.find_autoscheduler_root() is None, reason=f"no TVM with AutoScheduler: {resolve.HOW_TO_GET}"
)


def command(log: Path, *options: object) -> list[str]:
    return [sys.executable, "-m", "wmsched", "tune", TASK, "--log", str(log), *map(str, options)]


def tune(log: Path, *options: object, status: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    ran = subprocess.run(
        command(log, *options),
        capture_output=True,
        text=True,
        env={**env, "PYTHONPATH": str(ROOT)},
        timeout=300,
        cwd=log.parent if log.parent.is_dir() else log.parent.parent,
        check=False,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran


def programs(log: Path) -> list[str]:
    return [str(parse_record(line).steps) for line in log.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def four(made_once) -> tuple[Path, str]:
    """A log of four trials, and what was printed; no test may change it."""

    def make(folder: Path) -> str:
        folder.mkdir()
        printed = tune(folder / "log.json", "--trials", 4, "--seed", 1).stdout
        assert [path.name for path in folder.iterdir()] == ["log.json"]  # nothing else is left about
        return printed

    folder, printed = made_once("tuned-log", make)
    return folder / "log.json", printed


@pytest.fixture
def log(four, tmp_path) -> Path:
    """A copy of it."""
    return shutil.copy(four[0], tmp_path / "log.json")


def test_it_measures_logs_and_prints_the_best(four) -> None:
    log, printed = four
    assert (
        f"with ApplyHistoryBest('{log}'), tvm.transform.PassContext(" in printed
        and "with vector_math():" in printed
    )
    told = tally(log)
    assert told.total == 4 and told.bad == []
    (best,) = told.best.values()
    assert f"4/4 trials, {TASK}: best" in printed
    rows = [line for line in printed.splitlines() if line.startswith(TASK)]
    assert f"{best.measurement.seconds * 1e6:.1f} us" in rows[-1]
    assert "ApplyHistoryBest" in printed
    assert [len(json.loads(line)["r"][0]) for line in log.read_text().splitlines()] == [3] * 4  # places


def test_a_log_in_use_is_not_appended_to_by_accident(log) -> None:
    before = log.read_bytes()
    ran = tune(log, "--trials", 6, status=1)
    assert ran.stderr.startswith(f"wmsched: {log}: 4 records are in it already: --resume")
    assert log.read_bytes() == before


def test_resuming_a_finished_run_measures_nothing(log) -> None:
    before = log.read_bytes()
    ran = tune(log, "--trials", 4, "--resume")
    assert "has its 4 trials already" in ran.stdout and "gpt2/8" in ran.stdout
    assert log.read_bytes() == before
    ran = tune(log, "--trials", 4, "--resume", "--no-vector-math")
    assert ", vector_math=False), tvm.transform.PassContext(" in ran.stdout
    assert "with vector_math(False):" in ran.stdout


def test_time_ends_a_run_after_the_round_in_which_it_is_over(tmp_path) -> None:
    log = tmp_path / "log.json"
    printed = tune(log, "--minutes", 0.01, "--places", 1).stdout
    assert tally(log).total == 16 and f"16 trials, {TASK}: best" in printed


@contextmanager
def running(log: Path, trials: int, *options: object) -> Iterator[subprocess.Popen[str]]:
    """A run that has written so many trials by now, and is killed in the end."""
    with subprocess.Popen(
        command(log, *options),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=log.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 120
        while tally(log).total < trials and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_interrupted_killed_and_cut_off_in_a_line_it_goes_on(tmp_path) -> None:
    log, options = tmp_path / "log.json", ("--trials", 16, "--rounds", 4, "--places", 1)
    with running(log, 2, *options) as process:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "--resume" in said
    interrupted = tally(log).total
    with running(log, interrupted + 2, *options, "--resume"):
        pass  # it is killed now, at any moment of a round
    whole = log.read_bytes()
    whole = whole[: whole.rfind(b"\n") + 1]
    killed = tally(log).total
    assert 2 <= interrupted < interrupted + 2 <= killed < 16
    log.write_bytes(whole[:-30])
    ran = tune(log, "--trials", killed + 2, "--resume", "--seed", 2)
    assert f"{log}:{killed}" in ran.stdout
    assert tally(log).total == killed + 2 and tally(log).bad == []
    assert len(set(programs(log))) == killed + 2  # those that were whole were not measured again
    assert (tmp_path / "log.json.bad").read_bytes().rstrip(b"\n") == whole.splitlines()[-1][:-29]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--trials", 4, "--cost-model", "no-such-bundle"), "no-such-bundle"),
        (("--trials", 4, "--workloads", "none.json"), "none.json"),
    ],
)
def test_a_wrong_name_is_one_line_and_no_trace(tmp_path, options, said) -> None:
    ran = tune(tmp_path / "log.json", *options, status=1)
    assert said in ran.stderr and "Traceback" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_fewer_trials_than_tasks_say_how_many(tmp_path) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "wmsched",
            "tune",
            "gpt2",
            "--trials",
            "2",
            "--log",
            str(tmp_path / "l"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ran.returncode == 1
    assert "2 trials are too few for the" in ran.stderr and "--trials" in ran.stderr


def test_a_log_that_cannot_be_written_is_told_of_before_anything_is_measured(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    ran = tune(tmp_path / "folder", "--trials", 4, status=1)
    assert "cannot be written" in ran.stderr and "another --log" in ran.stderr and "folder" in ran.stderr
    (tmp_path / "file").write_text("")
    ran = tune(tmp_path / "file" / "log.json", "--trials", 4, status=1)
    assert "cannot be written" in ran.stderr


def test_without_a_compiler_nothing_is_tried(tmp_path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    log = tmp_path / "log.json"
    bare = {"PATH": str(empty), "CXX": "", "CC": ""}
    ran = tune(log, "--trials", 4, status=1, **bare)
    assert "needs a C++ compiler" in ran.stderr and len(ran.stderr.strip().splitlines()) == 1
    assert log.read_bytes() == b""


def test_where_nothing_can_be_measured_it_says_why(tmp_path) -> None:
    log = tmp_path / "log.json"
    ran = tune(log, "--trials", 4, "--cost-model", "random", status=1, CXX="/bin/false")
    assert "none of 4 candidates could be measured; the first: " in ran.stderr
    assert "/bin/false" in ran.stderr or "Compilation" in ran.stderr
    assert "give another --log" in ran.stderr
    assert tally(log).total == 4


def test_a_log_that_another_run_writes_is_left_alone(log) -> None:
    before = log.read_bytes()
    with locked(log.with_name(".log.json.lock"), whose=log, option="--log"):
        ran = tune(log, "--trials", 6, "--resume", status=1)
    assert "another run is writing" in ran.stderr and log.read_bytes() == before


def test_a_log_of_another_target_is_not_gone_on_with(four, log) -> None:
    other = ("--target", "llvm -num-cores=7")
    ran = tune(log, "--trials", 6, "--resume", *other, status=1)
    assert "its records are of the target" in ran.stderr and "num-cores=7" in ran.stderr
    assert log.read_bytes() == four[0].read_bytes()


@pytest.mark.parametrize(
    ("target", "said"), [("nonsense", "does not know it"), ("cuda -arch=sm_89", "no cuda device")]
)
def test_a_target_that_cannot_be_is_one_line(tmp_path, target, said) -> None:
    ran = tune(tmp_path / "log.json", "--trials", 4, "--target", target, status=1)
    assert said in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.slow  # a minute: two of the stock search's rounds
def test_a_seed_makes_the_stock_model_s_first_round_the_same(tmp_path) -> None:
    found = []
    for name in ("a.json", "b.json"):
        tune(tmp_path / name, "--trials", 4, "--cost-model", "xgb", "--seed", 5)
        found.append(sorted(programs(tmp_path / name)))
    assert len(set(found[0])) == 4 and found[0] == found[1]
