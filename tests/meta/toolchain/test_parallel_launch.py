"""The parallel launch in MetaSchedule's TVM."""

import json

import numpy as np
import pytest
import tvm
from launch_checks import *  # noqa: F403
from launch_checks import COUNT
from tvm import te
from tvm.s_tir import Schedule
from tvm.target import Target

from wmsched.metaschedule.measure import buffers
from wmsched.toolchain import parallel_launch
from wmsched.toolchain.targets import meta_host_target


def scheduled(count: int):
    a = te.placeholder((count,), name="a")
    schedule = Schedule(te.create_prim_func([a, te.compute((count,), lambda i: a[i] + 1, name="b")]))
    schedule.parallel(*schedule.get_loops("b"))
    return schedule.mod


@pytest.fixture
def program():
    def write(path):
        tvm.compile(scheduled(COUNT), Target(meta_host_target())).export_library(str(path))
        return lambda library: tvm.runtime.load_module(library)["main"], tvm.runtime.tensor

    return write


def test_an_error_of_a_workers_part_reaches_the_caller(two_threads, tmp_path):
    """TVM's FFI keeps it with the thread that it was raised in; a part here calls a function of Python's."""
    tvm.register_global_func("wmsched.test_fail", lambda: 1 / 0, override=True)

    @tvm.script.ir_module
    class Module:
        @tvm.script.tirx.prim_func
        def main(a: tvm.script.tirx.Buffer((64,), "float32")):
            for i in tvm.script.tirx.parallel(64):
                tvm.script.tirx.call_packed("wmsched.test_fail")
                a[i] = 1.0

    path = tmp_path / "program.so"
    tvm.compile(Module, Target(meta_host_target())).export_library(str(path))
    function = tvm.runtime.load_module(str(path))["main"]
    assert parallel_launch.install(path)
    before = parallel_launch.counts()["shared"]
    for _ in range(30):
        with pytest.raises(RuntimeError, match="division by zero"):
            function(tvm.runtime.tensor(np.zeros(64, "float32")))
    assert parallel_launch.counts()["shared"] > before


def test_a_runner_times_candidates_by_it(two_threads, tmp_path, monkeypatch):
    path = tmp_path / "program.so"
    tvm.compile(scheduled(COUNT), Target(meta_host_target())).export_library(str(path))
    described = tuple(json.loads(json.dumps(["TENSOR", "float32", [COUNT]])) for _ in range(2))
    for name in ("TVM_BIND_THREADS", "TVM_THREAD_POOL_SPIN_COUNT"):
        monkeypatch.setenv(name, "0")
    before = parallel_launch.counts()
    found = buffers.timed("", (1, 2, 0, None), 2, 10.0, str(path), described)
    after = parallel_launch.counts()
    assert len(found) == 4
    assert after["shared"] + after["alone"] > before["shared"] + before["alone"]
