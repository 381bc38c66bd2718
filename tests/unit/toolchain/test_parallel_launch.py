"""The parallel launch: every part of a loop is done once, whoever is busy, whoever calls and from where."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from wmsched.toolchain import compile_cache, parallel_launch

BODIES = Path(__file__).with_name("launch_bodies.cc")
BRIEF, LONG = 0, 20_000  # turns of an iteration: nanoseconds, about ten microseconds
SECONDS = 60

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not shutil.which("g++"), reason="compiled with g++, for Linux"
)


class Loops:
    """Launches loops whose bodies are compiled: see launch_bodies.cc."""

    def __init__(self, launch: str, bodies: str, threads: int) -> None:
        self.ours, self.bodies = ctypes.CDLL(launch), ctypes.CDLL(bodies)
        self.bodies.drive.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_int,
            ctypes.c_int, ctypes.c_void_p,
        ]  # fmt: skip
        self.ours.wmsched_launch_configure(threads, (ctypes.c_int * 0)(), 0, 0)

    def __call__(
        self, body: str = "divide", extent: int = 64, spin: int = BRIEF, *, tasks: int = 0, failing: int = -1,
        launches: int = 1,
    ) -> tuple[int, int, int]:  # fmt: skip
        """How many launches failed or left an iteration out; the most parts of one; inner launches' parts."""
        found = (ctypes.c_int * 2)()
        function = ctypes.cast(getattr(self.bodies, body), ctypes.c_void_p)
        launch = ctypes.cast(self.ours.wmsched_parallel_launch, ctypes.c_void_p)
        bad = self.bodies.drive(launch, function, extent, spin, tasks, failing, launches, found)
        return bad, found[0], found[1]

    def counts(self) -> dict[str, int]:
        found = (ctypes.c_uint64 * len(parallel_launch.COUNTS))()
        self.ours.wmsched_launch_counts(found)
        return dict(zip(parallel_launch.COUNTS, found, strict=True))


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> tuple[str, str]:
    """Paths of the compiled launch and of the compiled bodies."""
    folder = tmp_path_factory.mktemp("launch")
    launch, bodies = folder / "launch.so", folder / "bodies.so"
    compile_cache.compile_to(launch, "g++", [str(parallel_launch.SOURCE), *parallel_launch.OPTIONS])
    compile_cache.compile_to(bodies, "g++", ["-std=c++17", "-O1", str(BODIES)])
    return str(launch), str(bodies)


@pytest.fixture(scope="session")
def loops(files) -> Loops:
    return Loops(*files, threads=3)


def in_process(files, code: str, threads: int = 3) -> str:
    """What a process of its own prints that has `loops` and runs `code`."""
    here = str(Path(__file__).parent)
    start = f"import sys; sys.path.insert(0, {here!r})\nfrom test_parallel_launch import *\n"
    start += f"loops = Loops({files[0]!r}, {files[1]!r}, {threads})\n"
    command = [sys.executable, "-c", start + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("extent", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("spin", [BRIEF, LONG])
def test_every_part_is_done_once(loops, extent, spin):
    assert loops(extent=extent, spin=spin, launches=20)[0] == 0


def test_launches_of_changing_lengths_follow_one_another(loops):
    for turn in range(300):
        assert loops(extent=1 + turn % 130, spin=LONG // 20 * (turn % 3), launches=5)[0] == 0


@pytest.mark.alone  # others on the machine keep the worker away
def test_a_long_loop_is_shared_and_a_brief_one_is_not(files):
    code = """
assert loops(extent=16, spin=BRIEF, launches=2000)[0] == 0
before = loops.counts()
assert loops(spin=LONG, launches=300)[0] == 0  # some 50 of them say that the loop is no longer brief
print(before["shared"], loops.counts()["shared"] > 150, loops.counts()["by_workers"] > 0)
"""
    shared, long_shared, helped = in_process(files, code, threads=2).split()  # as many as cores, if alone
    assert int(shared) <= 50  # of 2000; what was measured first may have been disturbed
    assert (long_shared, helped) == ("True", "True")


def test_a_number_of_parts_that_is_asked_for_is_kept(loops):
    for tasks in (1, 2, 5, 64, 65, 200, 1024, 1500):
        assert loops(extent=3000, tasks=tasks, launches=10)[:2] == (0, tasks)


def test_a_part_that_fails_fails_the_launch(loops):
    for failing in range(5):  # the caller's own, and workers'
        assert loops(spin=LONG, tasks=5, failing=failing, launches=10)[0] == 10
    assert loops(spin=LONG, launches=10)[0] == 0


def test_a_launch_within_a_part_is_run_by_its_thread(loops):
    for tasks in (0, 4):
        bad, parts, inner = loops("nest", spin=LONG, tasks=tasks, launches=10)
        assert bad == 0
        assert inner >= 3 * 10
        assert inner <= 3 * 10 * parts


def test_threads_may_launch_at_once(loops):
    found: list[int] = []

    def call(spin: int) -> None:
        found.append(loops(extent=50, spin=spin, launches=300)[0])

    threads = [threading.Thread(target=call, args=(spin,)) for spin in (BRIEF, LONG // 10) * 3]
    for one in threads:
        one.start()
    for one in threads:
        one.join(SECONDS)
    assert found == [0] * 6


def test_copies_of_a_process_have_workers_of_their_own(files):
    code = """
assert loops(spin=LONG, launches=50)[0] == 0  # its workers are there
found = []
for _ in range(3):
    child = os.fork()
    if not child:
        before = loops.counts()["by_workers"]
        bad = loops("doze", tasks=3, launches=3)[0] + loops(spin=LONG, launches=50)[0]
        os._exit(100 if bad else loops.counts()["by_workers"] > before)
    found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert loops(spin=LONG, launches=50)[0] == 0
print(found)
"""
    assert in_process(files, code).strip() == "[1, 1, 1]"


def test_a_process_may_fork_while_a_thread_launches(files):
    code = """
import warnings; warnings.simplefilter("ignore")
stop = False
def launch():
    while not stop:
        assert loops(spin=LONG // 10, launches=20)[0] == 0
other = threading.Thread(target=launch)
other.start()
for _ in range(10):
    if not (child := os.fork()):
        os._exit(loops(spin=LONG // 10, launches=20)[0])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop = True
other.join()
print("done")
"""
    assert in_process(files, code).strip() == "done"


def test_a_process_ends_at_once_whatever_its_workers_do(files):
    for code in (
        "loops(spin=LONG, launches=50)",
        "threading.Thread(target=lambda: loops('doze', tasks=3, launches=10), daemon=True).start()\n"
        "time.sleep(0.05)",
    ):
        start = time.monotonic()
        in_process(files, code)
        assert time.monotonic() - start < SECONDS / 4


def test_idle_workers_sleep(files):
    code = """
loops(spin=LONG, launches=50)
time.sleep(0.1)
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before)
"""
    assert float(in_process(files, code)) < 0.02


def test_parts_of_workers_that_do_not_run_are_done_by_the_caller(files):
    """More workers than there are processors, all of them held up: the caller goes on alone."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        code = """
loops(spin=LONG, launches=10)
start = time.process_time(), time.monotonic()
bad = loops(spin=LONG // 10, launches=1000)[0]
print(bad, (time.monotonic() - start[1]) / (time.process_time() - start[0]))
"""
        bad, stretched = in_process(files, code).split()
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert bad == "0"
    assert float(stretched) < 20  # wall-clock over processors' time: 3 to 6 by the others' share alone


def test_signals_are_left_to_the_programs_own_threads(files):
    code = """
import signal
loops(spin=LONG, launches=10)
me = threading.get_ident()
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.get_ident() == me))
for _ in range(20):
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.002)
masks = [
    int(line.split()[1], 16)
    for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()
    for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk")
]
print(all(seen), len(seen), all(mask >> (signal.SIGUSR1 - 1) & 1 for mask in masks), len(masks))
"""
    assert in_process(files, code).split() == ["True", "20", "True", "2"]


def test_it_is_off_where_the_environment_says_so(monkeypatch):
    monkeypatch.setenv(parallel_launch.OFF, "0")
    assert parallel_launch.launch_path() == ""
    assert not parallel_launch.install("nothing.so")
    assert set(parallel_launch.counts().values()) == {0}


def test_without_a_compiler_it_says_so_once_and_goes_on(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    monkeypatch.delenv(parallel_launch.OFF, raising=False)
    parallel_launch._compiled.cache_clear()
    try:
        assert parallel_launch.launch_path() == parallel_launch.launch_path() == ""
        assert not parallel_launch.install("nothing.so")
    finally:
        parallel_launch._compiled.cache_clear()
    assert len(caplog.records) == 1
    assert "no C++ compiler" in caplog.text
    assert parallel_launch.OFF in caplog.text


def test_a_library_cut_short_is_compiled_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(parallel_launch.OFF, raising=False)
    sources = [parallel_launch.SOURCE, parallel_launch.HEADER]
    path = compile_cache.kept("parallel_launch", sources, *parallel_launch.OPTIONS)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x7fELF")
    parallel_launch._compiled.cache_clear()
    try:
        assert parallel_launch.launch_path() == str(path)
        ctypes.CDLL(str(path))
    finally:
        parallel_launch._compiled.cache_clear()


def test_a_library_is_asked_for_its_pointer_where_it_is_loaded(files):
    launch, bodies = files
    assert not parallel_launch.replace_launch("/nowhere/model.so", launch, 2)
    ctypes.CDLL(bodies)
    assert parallel_launch.replace_launch(bodies, launch, 2)  # no loop of it is run by TVM's launch


SOURCE_OF_A_PROGRAM = """
extern "C" {
%s
int TVMBackendParallelLaunch(void*, void*, int) { return 3; }
int other(void*, void*, int) { return 4; }
int (*__TVMBackendParallelLaunch)(void*, void*, int) = %s;
}
"""


@pytest.mark.parametrize(
    ("barrier", "filled_in", "replaced"),
    [
        ("", "TVMBackendParallelLaunch", True),
        ("", "other", False),  # as an emulator's
        ("", "nullptr", False),
        ("void* __TVMBackendParallelBarrier;", "TVMBackendParallelLaunch", False),
    ],
)
def test_tvms_own_launch_alone_is_replaced(files, tmp_path, barrier, filled_in, replaced):
    source = tmp_path / "program.cc"
    source.write_text(SOURCE_OF_A_PROGRAM % (barrier, filled_in))
    path = tmp_path / "program.so"
    compile_cache.compile_to(path, "g++", [str(source)])
    program = ctypes.CDLL(str(path))
    for _ in range(2):
        assert parallel_launch.replace_launch(str(path), files[0], 2) == replaced
    ours = ctypes.cast(ctypes.CDLL(files[0]).wmsched_parallel_launch, ctypes.c_void_p).value
    assert (ctypes.c_void_p.in_dll(program, "__TVMBackendParallelLaunch").value == ours) == replaced
