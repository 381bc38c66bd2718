"""Buffers of processes that start within `steady_buffers` lie alike."""

import json
import os
import subprocess
import sys

import pytest

from wmsched.measure.malloc_env import MALLOC_ENVIRONMENT, steady_buffers

OFFSETS = """
import ctypes, json, sys
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(8_000_000))  # by default glibc maps none of this size hereafter
keep = [libc.malloc(1_000_003 + 70_001 * k) for k in range(8)]
print(json.dumps(sorted({place % 4096 for place in keep})))
"""


def offsets() -> list[int]:
    found = subprocess.run([sys.executable, "-c", OFFSETS], check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a variable of glibc's")
def test_large_buffers_start_at_one_offset_of_a_page(monkeypatch) -> None:
    for name in MALLOC_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    assert len(offsets()) > 1
    with steady_buffers():
        assert len(offsets()) == 1
    assert not MALLOC_ENVIRONMENT.keys() & os.environ.keys()


def test_what_the_user_has_set_stays(monkeypatch) -> None:
    (name,) = MALLOC_ENVIRONMENT
    monkeypatch.setenv(name, "123")
    with steady_buffers():
        assert os.environ[name] == "123"
    assert os.environ[name] == "123"
