"""MetaSchedule's pools of processes, once our builder or runner is imported."""

from __future__ import annotations

from pool_end import deleted_by_a_starting_thread
from tvm.support.popen_pool import PopenPoolExecutor

from wmsched.metaschedule.measure import builder, runner


def test_a_pool_is_deleted_wherever_garbage_is_collected() -> None:
    assert builder.PopenPoolExecutor is runner.PopenPoolExecutor is PopenPoolExecutor
    assert deleted_by_a_starting_thread(PopenPoolExecutor)
