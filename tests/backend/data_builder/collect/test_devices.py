"""Collecting from devices behind an RPC tracker, on chosen cores, and with the noise check."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pretending import QUICK, Pretending, Watch, make_row, records
from small_tasks import Quiet

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.collect import collect as collecting
from data_builder.collect.collect import CollectOptions, batch_at, collect
from data_builder.collect.measure import MeasureOptions, devices_behind
from data_builder.derive.validate import problems
from data_builder.read.noise_checks import Checks, checks_of
from wmsched.base.errors import EnvironmentProblem
from wmsched.learn.data.dataset import Dataset
from wmsched.measure.tracker import host_and_port
from wmsched.toolchain.resolve import host_target


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def tracker():
    """A tracker with two devices called "board", all of them processes of this machine; its host:port."""
    port = free_port()
    # A server changes its directory for each session, and imports more of TVM there.
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    null = subprocess.DEVNULL
    quiet = {"stdout": null, "stderr": null, "start_new_session": True, "env": env}
    where = f"127.0.0.1:{port}"
    python = [sys.executable, "-m"]
    ports = ["--port", str(port), "--port-end", str(port + 1)]
    command = [*python, "tvm.exec.rpc_tracker", "--host", "127.0.0.1", *ports, "--silent"]
    started = [subprocess.Popen(command, **quiet)]
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        server = [*python, "data_builder.cli.main", "device", "--host", "127.0.0.1", "--tracker", where]
        started += [subprocess.Popen([*server, "--key", "board"], **quiet) for _ in range(2)]
        found = 0
        while found < 2 and time.monotonic() < deadline:
            try:
                found = devices_behind("127.0.0.1", port, "board")
            except EnvironmentProblem:
                time.sleep(0.2)
        assert found == 2, "the devices have not come"
        yield where
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_records_come_from_the_devices_behind_a_tracker(tracker: str, tmp_path: Path) -> None:
    remote = MeasureOptions(min_repeat_ms=1, rpc=tracker, key="board")
    watch = Watch()
    options = CollectOptions(trials=5, batch=5, target=host_target(), measure=remote)
    counts = collect([make_row(32)], tmp_path, options, watch)
    assert (counts["measured"], counts["failed"], watch.steps) == (5, 0, 5)
    assert any("2 devices 'board'" in note for note in watch.notes)
    found = records(tmp_path, make_row(32))
    assert len({json.dumps(record.steps) for record in found}) == 5
    assert all(record.measurement.ok for record in found)


def test_a_tracker_or_device_that_is_not_there_is_named_with_the_remedy(tracker: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"no device 'pi' \(it has: board\)"):
        devices_behind(*host_and_port(tracker), "pi")
    with pytest.raises(EnvironmentProblem, match="no RPC tracker answers"):
        devices_behind("127.0.0.1", free_port(), "board")
    for wrong in ("board", ":9190", "host:", "host:0", "host:x"):
        with pytest.raises(EnvironmentProblem, match="is not host:port"):
            host_and_port(wrong)


def programs_of(options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A measurer of these options, whose programs say their cores and their number of threads."""
    code = (
        "import os, subprocess, sys\n"
        "from data_builder.collect.measure import MeasureOptions, Measurer\n"
        f"Measurer(MeasureOptions({options}))\n"
        "child = 'import os; print(sorted(os.sched_getaffinity(0)), os.environ[\"TVM_NUM_THREADS\"])'\n"
        "print(subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout)\n"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=os.environ | environment
    )


def test_programs_stay_on_the_chosen_cores() -> None:
    core = min(os.sched_getaffinity(0))
    run = programs_of(f"cores=({core},)")
    assert run.returncode == 0 and run.stdout.strip() == f"[{core}] 1"
    assert "this process may use" in programs_of("cores=(9999,)").stderr


def test_programs_are_timed_with_their_number_of_threads_named() -> None:
    run = programs_of("", TVM_NUM_THREADS="", OMP_NUM_THREADS="")
    # as TVM counts them, and no more than there are for this process
    threads = max(1, min((os.cpu_count() or 1) // 2, len(os.sched_getaffinity(0))))
    assert run.returncode == 0 and run.stdout.split()[-1] == str(threads)


@pytest.mark.slow
def test_records_of_a_disturbed_time_are_marked_in_the_dataset(tmp_path: Path) -> None:
    options = CollectOptions(trials=4, mix=(1, 0), batch=2, noise_check=True, measure=QUICK)
    row = make_row(32)
    collect([row], tmp_path, options, Watch())
    noise = tmp_path / "noise.ndjson"
    checks = [json.loads(line) for line in noise.read_text().splitlines()]
    assert len(checks) == 3 and all(0 < check["seconds"] < 1 for check in checks)  # before, between, after
    times = [record.measurement.timestamp for record in records(tmp_path, row)]
    before, between, after = (int(check["t"]) for check in checks)  # TVM's records have whole seconds
    assert before <= times[0] <= times[1] <= between <= times[2] <= times[3] <= after
    # Seconds apart, as longer batches are; the last check as it would be if something else had run.
    begin = before - 100
    for check, t, seconds in zip(checks, (0, 20, 40), (1e-3, 1.02e-3, 2e-3), strict=True):
        check.update(t=begin + t + 0.5, seconds=seconds)
    log = next((tmp_path / "measure_records").iterdir())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line, t in zip(lines, (1, 19, 21, 39), strict=True):
        line["r"][3] = begin + t
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    # Half a line, as a kill leaves it.
    noise.write_text("".join(json.dumps(check) + "\n" for check in checks) + '{"t": 17')
    build([str(tmp_path / "measure_records")], tmp_path / "ds", BuildOptions(jobs=1), Quiet())
    dataset = Dataset(tmp_path / "ds")
    assert dataset.disturbed(dataset.workload_ids[0]) == [False, False, True, True]
    assert list(problems(tmp_path / "ds")) == []
    collect([row], tmp_path, CollectOptions(trials=5, batch=2, noise_check=True, measure=QUICK), Watch())
    assert len([json.loads(line) for line in noise.read_text().splitlines()]) == 5  # mended, and two more


def test_the_verdict_follows_the_checks_around_a_record() -> None:
    checks = Checks([0, 10, 20, 30, 5000], [1.0, 1.1, 1.3, float("nan"), 1.0])
    assert checks.usual == 1.0
    said = [checks.disturbed(t) for t in (-1, 5, 15, 25, 40, 2500, 4500, 6100)]
    assert said == [False, False, True, True, True, None, False, None]
    assert checks.disturbed(9) is False and checks.disturbed(10) is True
    # A whole second stands for any moment of it: checks within it, and the next after it, count.
    within = Checks([0.0, 7.2, 7.9, 9.5], [1.0, 1.0, 1.3, 1.0])
    assert [within.disturbed(t) for t in (6, 7, 8, 7.1)] == [False, True, True, False]
    assert Checks([], []).disturbed(1.0) is None
    assert checks_of("/nonexistent/log.json") is None


def test_batches_follow_from_the_options_alone() -> None:
    options = CollectOptions(trials=14, mix=(1, 1), batch=4)
    found = [batch_at(count, options) for count in range(14)]
    assert found[:7] == [(0, 4, False)] * 4 + [(4, 7, False)] * 3
    assert found[7:] == [(7, 11, True)] * 4 + [(11, 14, True)] * 3


class Killed(Exception):
    pass


@pytest.mark.parametrize("cost_model", ["none", pytest.param("xgb", marks=pytest.mark.slow)])
def test_a_run_that_was_killed_measures_what_it_would_have_measured(
    cost_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each record in turn: the same random schedules in the same order, none twice."""

    class Mortal(Pretending):
        left = 10**9

        def measure(self, task, states):
            for entry, result in super().measure(task, states):
                if Mortal.left == 0:
                    raise Killed
                Mortal.left -= 1
                yield entry, result

    monkeypatch.setattr(collecting, "Measurer", Mortal)
    options = CollectOptions(trials=9, mix=(5, 4), batch=4, cost_model=cost_model)
    row = make_row(32)
    collect([row], tmp_path / "whole", options, Watch())
    Mortal.left = 0
    for _ in range(9):
        with pytest.raises(Killed):
            collect([row], tmp_path / "killed", options, Watch())
        Mortal.left = 1
    counts = collect([row], tmp_path / "killed", options, Watch())
    assert counts["records"] == 9
    whole, killed = (
        [record.steps for record in records(tmp_path / name, row)] for name in ("whole", "killed")
    )
    if cost_model == "none":
        assert killed == whole
    else:  # the guided part comes of TVM's evolutionary search, which does not repeat itself
        assert killed[:5] == whole[:5]
    assert len({json.dumps(steps) for steps in killed}) == 9
