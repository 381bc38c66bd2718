"""Tests of the parallel launch in either TVM: a library computes the same, whoever runs its loops.

The module that takes them has a fixture `program`: given a path, it writes a library there whose function
adds 1 to each of `COUNT` numbers in a parallel loop, and returns what loads it and what makes a tensor of an
array.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from wmsched.base.cores import THREADS
from wmsched.toolchain import parallel_launch

COUNT = 1 << 20

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="for Linux")


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setenv(THREADS, "2")
    monkeypatch.delenv(parallel_launch.OFF, raising=False)
    if not parallel_launch.launch_path():
        pytest.skip("there is no C++ compiler")


def test_a_library_computes_the_same_by_our_launch(program, two_threads, tmp_path):
    load, tensor = program(tmp_path / "program.so")
    function = load(str(tmp_path / "program.so"))
    data, out = tensor(np.random.default_rng(0).random(COUNT, "float32")), tensor(np.zeros(COUNT, "float32"))
    function(data, out)
    theirs = out.numpy().copy()
    before = parallel_launch.counts()
    assert parallel_launch.install(tmp_path / "program.so")
    for _ in range(20):
        out = tensor(np.zeros(COUNT, "float32"))
        function(data, out)
        assert (out.numpy() == theirs).all()
    after = parallel_launch.counts()
    assert after["shared"] + after["alone"] - before["shared"] - before["alone"] == 20


def test_threads_call_it_at_once(program, two_threads, tmp_path):
    load, tensor = program(tmp_path / "program.so")
    function = load(str(tmp_path / "program.so"))
    assert parallel_launch.install(tmp_path / "program.so")
    wrong = []

    def call(k: int) -> None:
        data, out = tensor(np.full(COUNT, k, "float32")), tensor(np.zeros(COUNT, "float32"))
        for _ in range(20):
            function(data, out)
            wrong.extend([k] if (out.numpy() != k + 1).any() else [])

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []


def test_it_is_left_to_tvm_where_the_environment_says_so(program, two_threads, tmp_path, monkeypatch):
    monkeypatch.setenv(parallel_launch.OFF, "0")
    load, tensor = program(tmp_path / "program.so")
    function = load(str(tmp_path / "program.so"))
    assert not parallel_launch.install(tmp_path / "program.so")
    data, out = tensor(np.zeros(COUNT, "float32")), tensor(np.zeros(COUNT, "float32"))
    function(data, out)
    assert (out.numpy() == 1).all()


def test_without_a_compiler_loops_run_by_tvms_launch(program, two_threads, tmp_path, monkeypatch, caplog):
    load, tensor = program(tmp_path / "program.so")
    function = load(str(tmp_path / "program.so"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    parallel_launch._compiled.cache_clear()
    try:
        assert not parallel_launch.install(tmp_path / "program.so")
    finally:
        parallel_launch._compiled.cache_clear()
    data, out = tensor(np.zeros(COUNT, "float32")), tensor(np.zeros(COUNT, "float32"))
    function(data, out)
    assert (out.numpy() == 1).all()
    assert "no C++ compiler" in caplog.text


def test_a_library_that_is_not_loaded_is_not_ours(two_threads, tmp_path):
    assert not parallel_launch.install(tmp_path / "nothing.so")


def test_a_process_with_a_loaded_library_ends(two_threads):
    code = "import ctypes; from wmsched.toolchain import parallel_launch as p; ctypes.CDLL(p.launch_path())"
    assert (
        subprocess.run([sys.executable, "-c", code], env=os.environ, timeout=60, check=False).returncode == 0
    )
