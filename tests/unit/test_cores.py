"""How many processors and threads there are, in containers that are held to fewer than they are shown."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from wmsched import cores


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A machine of 64 processors, with the limit of a control group."""

    def made(*, cpu_max: str = "") -> Path:
        if cpu_max:
            (tmp_path / "cpu.max").write_text(cpu_max)
        return tmp_path

    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    monkeypatch.setattr(cores, "_shown", lambda: 64)
    monkeypatch.setattr(cores.platform, "machine", lambda: "x86_64")
    for name in (cores.THREADS, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return made


def older(folder: Path, quota: str, period: str) -> None:
    (folder / "cpu").mkdir()
    (folder / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu" / "cpu.cfs_period_us").write_text(period)


@pytest.mark.parametrize(
    "text, quota, usable, threads",
    [
        ("max 100000\n", None, 64, ""),
        ("400000 100000\n", 4, 4, "4"),
        ("250000 100000\n", 2.5, 3, "2"),
        ("50000 100000\n", 0.5, 1, "1"),
        ("3200000 100000\n", 32, 32, ""),  # as many as TVM takes of 64
        ("nonsense", None, 64, ""),
    ],
)
def test_a_limit_holds_processors_and_threads(machine, text, quota, usable, threads) -> None:
    machine(cpu_max=text)
    assert (cores.quota(), cores.usable_cores()) == (quota, usable)
    environment: dict[str, str] = {}
    said = cores.hold_threads(environment)
    assert environment == ({cores.THREADS: threads} if threads else {})
    assert bool(said) == bool(threads)
    if threads:
        assert f"TVM_NUM_THREADS={threads}" in said and f"{quota:g} processors of 64" in said
        assert f"TVM_NUM_THREADS={threads}" in cores.too_many_threads()


@pytest.mark.parametrize("quota, found", [("400000", 4.0), ("-1", None), ("0", None)])
def test_the_older_control_groups(machine, quota, found) -> None:
    older(machine(), quota, "100000")
    assert cores.quota() == found


def test_no_control_group_at_all(machine) -> None:
    machine()
    assert cores.quota() is None and cores.usable_cores() == 64 and not cores.too_many_threads()


def test_what_the_user_has_set_stays(machine, monkeypatch) -> None:
    machine(cpu_max="400000 100000")
    environment = {cores.THREADS: "16"}
    assert cores.hold_threads(environment) == "" and environment == {cores.THREADS: "16"}
    monkeypatch.setenv(cores.THREADS, "4")
    assert cores.too_many_threads() == ""
    monkeypatch.setenv(cores.THREADS, "16")
    assert "16 threads" in cores.too_many_threads()


def test_tuning_says_so(machine, monkeypatch, caplog) -> None:
    from typer.testing import CliRunner

    from wmsched.cli import app

    machine(cpu_max="400000 100000")
    monkeypatch.setenv(cores.THREADS, "")  # so that it is put back
    with caplog.at_level(logging.WARNING):
        told = CliRunner().invoke(app, ["tune", "no-such-task", "--trials", "1"])
    assert told.exit_code and "4 processors of 64" in told.output
    assert cores.os.environ[cores.THREADS] == "4"


@pytest.mark.parametrize(
    "cpu_max, siblings, threads",
    [
        ("max 100000\n", {0: "0\n", 1: "1\n", 2: "2\n", 3: "3\n"}, 4),  # a virtual machine's
        ("max 100000\n", {0: "0,2\n", 1: "1,3\n", 2: "0,2\n", 3: "1,3\n"}, 2),
        ("max 100000\n", {0: "0-1\n", 1: "0-1\n", 2: "2\n", 3: "3\n"}, 3),  # cores of two kinds
        ("250000 100000\n", {0: "0\n", 1: "1\n", 2: "2\n", 3: "3\n"}, 2),
        ("50000 100000\n", {0: "0\n", 1: "1\n"}, 1),
        ("max 100000\n", {}, 2),  # the system does not say: as TVM, half of 4
    ],
)
def test_a_model_runs_on_a_thread_for_each_core(machine, monkeypatch, cpu_max, siblings, threads) -> None:
    folder = machine(cpu_max=cpu_max)
    for number, text in siblings.items():
        place = folder / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(text)
    monkeypatch.setattr(cores, "PROCESSORS", folder)
    monkeypatch.setattr(cores, "_shown", lambda: len(siblings) or 4)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(siblings) or {0, 1, 2, 3})
    assert cores.model_threads({}) == threads
    idle = cores.idle_cores({})
    assert (f"{cores.THREADS}={threads}," in idle) if threads > cores.tvm_threads({}) else not idle
    assert cores.model_threads({cores.THREADS: "5"}) == cores.model_threads({"OMP_NUM_THREADS": "5"}) == 5
