"""The processes that build and time a processor's programs start without PyTorch; with it where they must."""

from __future__ import annotations

import os
import sys

import programs as P
import pytest
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.target import Target

from wmsched.metaschedule.measure.builder import KeptBuilder, build
from wmsched.metaschedule.measure.measurer import Measurer, steady_runner
from wmsched.toolchain import cuda, no_torch
from wmsched.toolchain.targets import meta_host_target


def has_torch(pool) -> bool:
    return pool.submit(lambda: "torch" in __import__("sys").modules).result()


def test_neither_builder_nor_runner_of_a_processor_has_it() -> None:
    target = meta_host_target()
    measurer = Measurer(Target(target), builders=1, places=1)
    ((_, result),) = measurer.measure(P.sampled(P.context(P.matmul(), target), 1))
    assert result.run_secs
    runner = measurer._runner._inst.runner._inst.runner
    assert not has_torch(measurer._builder._inst.pool) and not has_torch(runner._inst.pool)


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A place on the path with which no worker starts, in place of the one that hides PyTorch."""
    (tmp_path / "cloudpickle.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(no_torch, "SITE", tmp_path)


@pytest.mark.slow
def test_a_builder_that_does_not_start_without_it_has_it(broken) -> None:
    builder = KeptBuilder(max_workers=1, timeout_sec=60.0, f_build=build, torch=False)
    (built,) = builder.build([BuilderInput(P.module(P.matmul(8)), Target(P.CPU))])
    assert built.artifact_path and has_torch(builder._inst.pool)


@pytest.mark.slow
def test_a_runner_that_does_not_start_without_it_has_it(broken) -> None:
    runner = steady_runner(Target(P.CPU))._inst
    assert runner.torch and has_torch(runner.runner._inst.pool)


def no_libraries() -> None:
    raise OSError("libcudart.so.13: cannot open shared object file")


def of_gpu(monkeypatch, check=None):
    """A builder as a search on a GPU has it; nothing is timed."""
    if check is not None:
        monkeypatch.setattr(cuda, "check_libraries", check)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # NVRTC is where it is here
    return Measurer(Target(P.GPUS["RTX 4090"]), builders=1, runner=object())._builder


@pytest.mark.slow
def test_a_builder_of_a_gpu_has_it_where_cuda_s_libraries_are_its(monkeypatch) -> None:
    builder = of_gpu(monkeypatch, no_libraries)
    assert builder._inst.torch and has_torch(builder._inst.pool)


@pytest.mark.slow
def test_a_builder_of_a_gpu_compiles_without_it(monkeypatch) -> None:
    """With NVRTC, and without a GPU."""
    try:
        cuda.check_libraries()
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"no CUDA here: {error}")
    builder = of_gpu(monkeypatch)
    target = Target(P.GPUS["RTX 4090"])
    (candidate, *_) = P.sampled(P.context(P.matmul(), target), 1)
    (built,) = builder.build([BuilderInput(candidate.sch.mod, target)])
    assert built.error_msg is None and built.artifact_path
    assert not builder._inst.torch and not has_torch(builder._inst.pool)


def test_a_builder_of_the_user_s_functions_has_it() -> None:
    builder = KeptBuilder(max_workers=1, timeout_sec=60.0)
    assert builder._inst.torch and has_torch(builder._inst.pool)
