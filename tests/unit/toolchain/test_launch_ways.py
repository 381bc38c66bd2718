"""Beside other programs launches go the faster way, and single ones the other: no whole call does."""

from __future__ import annotations

import ctypes
import shutil
import sys
from pathlib import Path

import pytest

from wmsched.toolchain import compile_cache, parallel_launch

DRIVER = Path(__file__).with_name("launch_ways.cc")
LAUNCHES = 20_000

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not shutil.which("g++"), reason="compiled with g++, for Linux"
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("ways") / "ways.so"
    include = f"-I{parallel_launch.HEADER.parent}"
    compile_cache.compile_to(path, "g++", ["-std=c++17", "-O1", include, str(DRIVER)])
    return ctypes.CDLL(str(path))


def drive(driver: ctypes.CDLL, alone: float, shared: float) -> tuple[float, int]:
    """The part of launches that were shared, and the most in succession that went the slower way."""
    found = (ctypes.c_int * 2)()
    driver.drive(LAUNCHES, ctypes.c_double(alone), ctypes.c_double(shared), found)
    return found[0] / LAUNCHES, found[1]


@pytest.mark.parametrize("shared", [0.5, 0.9, 1.1, 2.0])
def test_launches_go_the_faster_way_and_one_of_32_the_other(driver, shared) -> None:
    driver.start()
    drive(driver, 1.0, shared)
    part, in_succession = drive(driver, 1.0, shared)
    assert 0.02 < (1 - part if shared > 1 else part) < 0.05
    assert in_succession <= 3


def test_they_follow_when_the_other_way_becomes_the_faster_one(driver) -> None:
    driver.start()
    for shared in (2.0, 0.5, 2.0):
        drive(driver, 1.0, shared)
        part, _ = drive(driver, 1.0, shared)
        assert (part > 0.9) == (shared > 1)
