"""Builders that stay for the next batch, and that are replaced when they hang, crash or have built enough."""

from __future__ import annotations

from pathlib import Path

import programs as P
import pytest
from checkout import SUPPORT
from fated import export, number
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.target import Target

from wmsched.metaschedule.measure import builder as meta_builder
from wmsched.metaschedule.measure.builder import KeptBuilder, build

TARGET = {"kind": "llvm", "num-cores": 1}


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A file that says what becomes of the next build."""
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))  # the workers import `fated`
    return tmp_path / "told"


def inputs(count=1):
    return [BuilderInput(P.module(P.matmul(8)), Target(TARGET)) for _ in range(count)]


def paths(results):
    assert all(result.error_msg is None for result in results), [r.error_msg for r in results]
    return [str(result.artifact_path) for result in results]


def test_programs_are_built_by_the_processes_of_the_batch_before(told) -> None:
    builder = KeptBuilder(max_workers=1, timeout_sec=60.0, torch=False, f_build=number, f_export=export)
    first, second = (set(paths(builder.build(inputs(3)))) for _ in range(2))
    assert first == second and len(first) == 1


def test_what_goes_wrong_is_one_program_s(told) -> None:
    """A crash, an exception, a hang: the next program is built, by the same process after the exception."""
    builder = KeptBuilder(max_workers=1, timeout_sec=60.0, torch=False, f_build=number, f_export=export)
    (before,) = paths(builder.build(inputs()))
    for fate, reason, same in (
        ("raise", "made to fail", True),
        ("crash", "exception", False),
        ("hang", "Timeout", False),
    ):
        told.write_text(fate)
        # the process is there: so short a time is for the build alone
        builder._inst.pool._timeout = 2.0 if fate == "hang" else 60.0
        (failed,) = builder.build(inputs())
        builder._inst.pool._timeout = 60.0
        assert failed.artifact_path is None and reason in str(failed.error_msg)
        told.unlink()
        (after,) = paths(builder.build(inputs()))
        assert (after == before) is same
        before = after


@pytest.mark.slow
def test_a_process_is_replaced_in_time(told, monkeypatch) -> None:
    monkeypatch.setattr(meta_builder, "MAX_PROCESS_USES", 2)
    builder = KeptBuilder(max_workers=1, timeout_sec=60.0, torch=False, f_build=number, f_export=export)
    made = paths(builder.build(inputs(4)))  # the first use of the first was the look at the functions
    assert len(set(made)) == 3 and made[1] == made[2]


def test_a_function_that_no_worker_knows_is_told_at_once() -> None:
    with pytest.raises(Exception, match=r"no\.such\.function"):
        KeptBuilder(max_workers=1, timeout_sec=60.0, torch=False, f_build="no.such.function")


def test_a_program_is_built() -> None:
    builder = KeptBuilder(max_workers=1, timeout_sec=60.0, torch=False, f_build=build)
    (path,) = paths(builder.build(inputs()))
    assert Path(path).stat().st_size > 0


def test_a_process_that_ended_between_two_batches_is_started_anew(told) -> None:
    """As Ctrl-C ends those that have nothing to do."""
    builder = KeptBuilder(max_workers=1, timeout_sec=60.0, torch=False, f_build=number, f_export=export)
    (before,) = paths(builder.build(inputs()))
    (worker,) = builder._inst.pool._worker_map.values()
    worker._proc.kill()
    worker._proc.wait()
    (after,) = paths(builder.build(inputs()))
    assert after != before
