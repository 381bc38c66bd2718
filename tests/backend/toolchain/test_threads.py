"""Parallel loops of AutoScheduler's programs run in as many threads as TVM says it has."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tvm

WHO_RUNS = """
import ctypes, threading, time
import tvm

class Group(ctypes.Structure):
    _fields_ = [("sync", ctypes.c_void_p), ("parts", ctypes.c_int32)]

seen = []

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(Group), ctypes.c_void_p)
def part(number, group, data):
    seen.append((number, group.contents.parts, threading.get_native_id()))
    time.sleep(0.05)
    return 0

tvm._ffi.base._LIB.TVMBackendParallelLaunch(part, None, 0)
print(sorted(number for number, _, _ in seen), {parts for _, parts, _ in seen}, len({id for *_, id in seen}))
"""


def who_runs(**environment: str) -> str:
    """What a process that was started for TVM says of the parts of a parallel loop."""
    done = subprocess.run(
        [sys.executable, "-c", WHO_RUNS],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("threads", "also", "found"),
    [
        ("3", {}, "[0, 1, 2] {3} 3"),  # more than this machine has processors for, maybe: as asked
        ("1", {}, "[0] {1} 1"),
        # where OpenMP may start fewer than it is asked for, there would be parts that nobody computes
        ("3", {"OMP_THREAD_LIMIT": "2"}, "[0] {1} 1"),
        ("3", {"OMP_DYNAMIC": "true"}, "[0] {1} 1"),
    ],
)
def test_a_parallel_loop_has_a_part_for_each_thread(threads, also, found):
    assert who_runs(TVM_NUM_THREADS=threads, **also) == found


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_all_of_it_is_computed(rows, target, monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "3")
    a = tvm.te.placeholder((rows, 5), name="a")
    b = tvm.te.compute((rows, 5), lambda i, j: a[i, j] + 1.0, name="b")
    schedule = tvm.te.create_schedule(b.op)
    schedule[b].parallel(b.op.axis[0])
    values = tvm.nd.array(np.arange(rows * 5, dtype="float32").reshape(rows, 5))
    out = tvm.nd.array(np.zeros((rows, 5), "float32"))
    tvm.build(schedule, [a, b], target)(values, out)
    assert (out.numpy() == values.numpy() + 1).all()
