"""A sample of ONNX's backend tests: none wrong, and each refusal names its operator."""

from __future__ import annotations

import os
import signal
import time

import pytest

pytest.importorskip("onnx")

from benchmarks.operators import onnx_cases, workers

SAMPLE = (
    "test_softmax_axis_1", "test_nllloss_NC", "test_rotary_embedding", "test_attention_4d_gqa",
    "test_isinf_positive", "test_convtranspose_output_shape", "test_bitshift_right_int32_shift_ge_width",
    "test_resize_downsample_scales_linear_antialias", "test_split_zero_size_splits_opset18",
    "test_mod_float_edge_cases_fmod_0_float32", "test_lppool_2d_dilations",
    "test_qlinearmatmul_2D_int8_float16",
    "test_scan9_sum", "test_linear_attention_delta", "test_range_int32_type_negative_delta_expanded",
    "test_sequence_model3",
    "test_reversesequence_time", "test_col2im_strides", "test_maxunpool_export_with_output_shape",
    "test_Conv2d_groups", "test_operator_index", "test_reduce_log_sum_exp_empty_set",
)  # fmt: skip
REFUSED = {
    "test_nonmaxsuppression_single_box": "NonMaxSuppression",
    "test_cast_FLOAT_to_FLOAT8E5M2": "Cast",
    "test_string_concat": "StringConcat",
    "test_split_to_sequence_1": "SplitToSequence",
}


@pytest.fixture(scope="module", autouse=True)
def cases(made_once):
    """The cases of the sample; to make all of ONNX's takes ten seconds, which one of the workers spends."""
    names = [*SAMPLE, *REFUSED, "test_add"]
    _, found = made_once("onnx-cases", lambda _: {name: onnx_cases.cases()[name] for name in names})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_cases, "cases", lambda: found)
        yield


@pytest.mark.parametrize("name", SAMPLE)
def test_it_is_right(name):
    line = onnx_cases.judge(name, "ours")
    assert line["verdict"] == "right", line["reason"]


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name):
    line = onnx_cases.judge(name, "ours")
    assert line["verdict"] == "refused" and line["reason"].startswith(REFUSED[name] + ": ")


def test_a_case_that_ends_its_process_or_hangs_is_a_line(monkeypatch):
    def fated(name, who):
        if who == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    monkeypatch.setattr(workers, "MAX_WAIT", 2.0)
    worker = workers.Worker(fated, onnx_cases.about)
    assert worker.judge("test_add", "killed")["reason"] == "ends the process: code -9"
    found = worker.judge("test_add", "asleep")
    assert found["verdict"] == "crash" and "hangs" in found["reason"] and found["operator"] == "Add"
