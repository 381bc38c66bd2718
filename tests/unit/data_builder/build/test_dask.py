"""Replay on a Dask cluster of two worker processes; skipped where `distributed` is not installed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from build_logs import content, make_logs
from dataset_files import quiet

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from wmsched.base.errors import EnvironmentProblem

distributed = pytest.importorskip("distributed", reason="--dask needs the extra `dask`")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A scheduler and two workers, each a process; the scheduler's address."""
    folder = tmp_path_factory.mktemp("dask")
    place = folder / "scheduler.json"
    quietly = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    python = [sys.executable, "-m"]
    command = [
        *python,
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
    ]
    started = [subprocess.Popen([*command, "--scheduler-file", str(place)], **quietly)]
    worker = [*python, "distributed.cli.dask_worker", "--scheduler-file", str(place), "--nthreads", "1"]
    started += [subprocess.Popen([*worker, "--no-nanny", "--no-dashboard"], **quietly) for _ in range(2)]
    try:
        deadline = time.monotonic() + 120
        while not place.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with distributed.Client(scheduler_file=str(place), timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            yield client.scheduler.address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_cluster_makes_the_same_dataset_even_when_a_worker_dies(cluster, tmp_path: Path) -> None:
    address, workers = cluster
    logs = make_logs(tmp_path)
    build([str(logs)], tmp_path / "here", BuildOptions(jobs=1), quiet())
    build([str(logs)], tmp_path / "there", BuildOptions(dask=address), quiet())
    assert content(tmp_path / "there") == content(tmp_path / "here")
    workers[0].kill()
    build([str(logs)], tmp_path / "one", BuildOptions(dask=address), quiet())
    assert content(tmp_path / "one") == content(tmp_path / "here")


def test_a_scheduler_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda *a, **k: client(*a, **{**k, "timeout": 1}))
    with pytest.raises(EnvironmentProblem, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        build([str(make_logs(tmp_path))], tmp_path / "ds", BuildOptions(dask="tcp://127.0.0.1:9"), quiet())
