"""How many processors and threads there are, in containers that are held to fewer than they are shown."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from wmsched.base import cores


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A machine of 64 processors, with the limit of a control group, or a mask of its first few."""

    def made(*, cpu_max: str = "", mask: int = 64, online: int = 64) -> Path:
        if cpu_max:
            (tmp_path / "cpu.max").write_text(cpu_max)
        monkeypatch.setattr(cores, "STARTED_ON", mask)
        monkeypatch.setattr(cores, "_online", lambda: online)
        monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(mask)))
        return tmp_path

    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    monkeypatch.setattr(cores, "PROCESSORS", tmp_path)
    monkeypatch.setattr(cores.platform, "machine", lambda: "x86_64")
    for name in (cores.THREADS, cores.BIND, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return made


def older(folder: Path, quota: str, period: str) -> None:
    (folder / "cpu").mkdir()
    (folder / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu" / "cpu.cfs_period_us").write_text(period)


def share(folder: Path, siblings: dict[int, str]) -> None:
    """Have the system say which processors share a core."""
    for number, text in siblings.items():
        place = folder / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(text)


def run_at(folder: Path, ghz: dict[int, float]) -> None:
    """Have the system say the greatest frequencies of processors."""
    for number, frequency in ghz.items():
        place = folder / f"cpu{number}" / "cpufreq"
        place.mkdir(parents=True, exist_ok=True)
        (place / "cpuinfo_max_freq").write_text(f"{int(frequency * 1e6)}\n")


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
    said = cores.limit_threads(environment)
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
    assert cores.limit_threads(environment) == "" and environment == {cores.THREADS: "16"}
    monkeypatch.setenv(cores.THREADS, "4")
    assert cores.too_many_threads() == ""
    monkeypatch.setenv(cores.THREADS, "16")
    assert "16 threads" in cores.too_many_threads()


@pytest.mark.parametrize(
    ("siblings", "bound"),
    [
        ([(0, 1), (2, 3), (4, 5), (6, 7)], False),  # WSL 2, Hyper-V
        ([(0, 1), (2, 3), (4,), (5,), (6,)], False),  # cores of two kinds
        ([(0, 4), (1, 5), (2, 6), (3, 7)], True),
        ([(0,), (1,), (2,), (3,)], True),
        ([], True),  # the system does not say
    ],
)
def test_no_thread_is_tied_to_a_core_where_neighbours_share_one(
    machine, monkeypatch, siblings, bound
) -> None:
    """TVM ties its threads to the first processors, as many as there are cores."""
    texts = {number: f"{core}\n" for core in siblings for number in core}
    share(machine(mask=len(texts) or 8, online=len(texts) or 8), texts)
    monkeypatch.setattr(cores, "STARTED_IN", frozenset(texts or range(8)))
    environment: dict[str, str] = {}
    cores.leave_unbound(environment)
    assert environment == ({} if bound else {cores.BIND: "0"})
    cores.leave_unbound(told := {cores.BIND: "1"})
    assert told == {cores.BIND: "1"}


@pytest.mark.parametrize(
    ("ghz", "told", "asked"),
    [
        ([5.3] * 4 + [5.2] * 16, "", 10),  # two cores that may be a little faster
        ([5.3] * 4 + [5.2] * 16, "8", 8),
        ([5.3] * 4 + [5.2] * 16, "4", None),
        ([5.1] * 12 + [3.9] * 8, "", None),  # cores of two kinds
        ([5.1] * 20, "64", None),
        ([], "64", None),  # the system does not say
    ],
)
def test_all_cores_are_used_where_a_few_are_a_little_faster(machine, monkeypatch, ghz, told, asked) -> None:
    folder = machine(mask=20, online=20)
    run_at(folder, dict(enumerate(ghz)))
    monkeypatch.setenv(cores.THREADS, told)
    monkeypatch.setattr(cores, "_thread", SimpleNamespace())
    given: list[tuple[int, int]] = []
    found = {"runtime.config_threadpool": lambda *arguments: given.append(arguments)}
    tvm = SimpleNamespace(get_global_func=lambda name, allow_missing: found.get(name))
    for _ in range(2):  # once in a thread
        cores.apply_requested_threads(tvm)
    assert given == ([] if asked is None else [(1, asked)])


def test_tuning_says_so(machine, monkeypatch, caplog) -> None:
    from typer.testing import CliRunner

    from wmsched.cli.main import app

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
def test_a_model_runs_on_a_thread_for_each_core(machine, cpu_max, siblings, threads) -> None:
    count = len(siblings) or 4
    share(machine(cpu_max=cpu_max, mask=count, online=count), siblings)
    assert cores.model_threads({}) == threads
    idle = cores.idle_cores({})
    assert (f"{cores.THREADS}={threads}," in idle) if threads > cores.tvm_threads({}) else not idle
    assert cores.model_threads({cores.THREADS: "5"}) == cores.model_threads({"OMP_NUM_THREADS": "5"}) == 5


@pytest.mark.parametrize(
    "mask, cpu_max, siblings, threads",
    [
        (8, "", {}, "8"),
        (8, "", {n: f"{n},{n + 32}" for n in range(8)}, "8"),
        (8, "", {n: f"{n - n % 2}-{n - n % 2 + 1}" for n in range(8)}, "4"),  # four cores, whole
        (8, "250000 100000\n", {}, "2"),  # a limit of time as well, which is narrower
        (8, "1600000 100000\n", {}, "8"),  # which is wider
        (40, "", {}, ""),  # TVM takes 32 of 64
        (64, "", {}, ""),
    ],
)
def test_a_mask_holds_threads_and_ties_none_to_a_core(machine, mask, cpu_max, siblings, threads) -> None:
    """As `taskset` and Slurm hold a process; TVM counts the machine's processors all the same."""
    share(machine(cpu_max=cpu_max, mask=mask), siblings)
    assert cores.tvm_threads({}) == 32
    wrong = cores.too_many_threads()
    environment: dict[str, str] = {}
    said = cores.limit_threads(environment)
    unbound = {cores.BIND: "0"} if mask < 64 else {}
    if not threads:
        assert wrong == said == "" and environment == unbound
        return
    assert environment == {cores.THREADS: threads, **unbound}
    assert f"on 32 threads: set {cores.THREADS}={threads}, where" in wrong
    assert f"processors of 64: programs run on {threads} threads" in said


def test_within_a_mask_what_the_user_has_set_stays(machine) -> None:
    machine(mask=8)
    environment = {cores.THREADS: "6", cores.BIND: "1"}
    assert cores.limit_threads(environment) == ""
    cores.name_threads(SimpleNamespace(runtime=SimpleNamespace()), environment)
    assert environment == {cores.THREADS: "6", cores.BIND: "1"}


@pytest.mark.parametrize("mask, named", [(64, "31"), (40, "32"), (8, "8")])
def test_tvm_is_told_its_number_of_threads_or_what_a_mask_leaves(machine, monkeypatch, mask, named) -> None:
    machine(mask=mask)
    monkeypatch.setattr(cores.os, "sched_setaffinity", lambda *_: None)
    asked: list[int] = []

    def count() -> int:  # and TVM has started them
        asked.append(1)
        return 31

    tvm = SimpleNamespace(runtime=SimpleNamespace(num_threads=count))
    environment: dict[str, str] = {}
    cores.name_threads(tvm, environment)
    assert environment == {cores.THREADS: named} | ({} if mask == 64 else {cores.BIND: "0"})
    assert bool(asked) == (mask == 64)
    cores.name_threads(tvm, environment)
    assert len(asked) == (mask == 64)  # told once
    silent: dict[str, str] = {}
    cores.name_threads(SimpleNamespace(runtime=SimpleNamespace()), silent)  # TVM before 0.9
    assert cores.THREADS not in silent


def test_processors_are_counted_as_tvm_counts_them_whatever_the_mask() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from wmsched.base import cores; print(cores._online(), cores.STARTED_ON, cores.usable_cores())"
    root = Path(cores.__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert ran.stdout.split() == [str(os.cpu_count()), "1", "1"]


def test_groups_below_the_root_hold_a_process_too(machine, monkeypatch, tmp_path) -> None:
    """As systemd's and Slurm's do, outside of a container."""
    folder = machine(cpu_max="3200000 100000\n")
    own = tmp_path / "own"
    own.write_text("5:cpuset:/\n0::/slurm/job_7\n")
    monkeypatch.setattr(cores, "OWN_GROUP", own)
    assert cores.quota() == 32
    (folder / "slurm" / "job_7").mkdir(parents=True)
    (folder / "slurm" / "cpu.max").write_text("400000 100000\n")
    (folder / "slurm" / "job_7" / "cpu.max").write_text("max 100000\n")
    assert cores.quota() == 4
    own.write_text("3:cpu,cpuacct:/job\n")
    (folder / "cpu" / "job").mkdir(parents=True)
    (folder / "cpu" / "job" / "cpu.cfs_quota_us").write_text("200000")
    (folder / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000")
    assert cores.quota() == 2
    own.write_text("0::/../../elsewhere\n")  # of another namespace
    assert cores.quota() == 32


def test_what_is_set_here_is_no_wish_of_the_user_s(monkeypatch) -> None:
    monkeypatch.setattr(cores, "_own", {})
    monkeypatch.setattr(cores, "_named", {})
    monkeypatch.delenv("A_NAME", raising=False)
    cores.set_here("A_NAME", "1")
    assert "A_NAME" not in cores.thread_env(os.environ) and "PATH" in cores.thread_env(os.environ)
    monkeypatch.setenv("A_NAME", "2")  # the user's own, after that
    assert cores.thread_env(os.environ)["A_NAME"] == "2"
    monkeypatch.delenv(cores.THREADS, raising=False)
    cores.name_threads(SimpleNamespace(runtime=SimpleNamespace(num_threads=lambda: 3)))
    assert os.environ[cores.THREADS] == "3" and cores.THREADS not in cores.thread_env(os.environ)
    assert cores.is_default(os.environ)
    cores.set_here(cores.THREADS, "2")  # a model's: a second one does not change it
    assert not cores.is_default(os.environ)
    monkeypatch.delenv(cores.THREADS)


def test_a_thread_that_tvm_has_tied_to_a_core_is_freed(monkeypatch) -> None:
    now = [{1}]
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: now[0])
    monkeypatch.setattr(cores.os, "sched_setaffinity", lambda _, mask: now.__setitem__(0, set(mask)))
    monkeypatch.setattr(cores, "STARTED_IN", frozenset({0, 1, 2}))
    monkeypatch.setattr(cores, "_before_tvm", frozenset())
    monkeypatch.setitem(sys.modules, "tvm", SimpleNamespace())
    monkeypatch.setenv(cores.BIND, "0")
    cores.unpin_main_thread()
    assert now == [{1}]  # the user's mask: TVM ties none
    monkeypatch.delenv(cores.BIND)
    cores.unpin_main_thread()
    assert now == [{0, 1, 2}]
    now[0] = {1, 2}  # as the user has it when TVM is imported
    monkeypatch.delitem(sys.modules, "tvm")
    cores.configure_before_import()
    monkeypatch.setitem(sys.modules, "tvm", SimpleNamespace())
    now[0] = {1}
    cores.unpin_main_thread()
    assert now == [{1, 2}]
