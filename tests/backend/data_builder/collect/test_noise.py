"""The program that must work wherever schedules are measured."""

from __future__ import annotations

from data_builder.collect.noise import _schedule, reference
from wmsched.ansor.compute_dag import state_text


def test_the_reference_program_has_threads_on_a_gpu_and_no_schedule_on_a_processor(target: str) -> None:
    from tvm.target import Target

    task, state = reference(target)
    assert len(state.transform_steps) == 0
    assert "threadIdx" not in state_text(task.compute_dag, state)
    bound = _schedule(task.compute_dag, Target("cuda -arch=sm_80"))
    text = state_text(task.compute_dag, bound)
    assert "blockIdx.x" in text and "threadIdx.x" in text
