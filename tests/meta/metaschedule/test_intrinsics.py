"""Only the intrinsics of the target are imported, and the others can be still."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

from wmsched.metaschedule import intrinsics

CHECK = """
import sys
from tvm.target import Target
from wmsched.metaschedule.intrinsics import import_intrinsics
from tvm.s_tir import TensorIntrin
import_intrinsics(Target({target!r}))
import_intrinsics(Target({target!r}))
assert TensorIntrin.get({own!r}) is not None
assert TensorIntrin.get({other!r}, allow_missing=True) is None
assert not any(name.endswith("tensor_intrin.cuda") for name in sys.modules)
from tvm.s_tir.tensor_intrin import x86, arm_cpu
from tvm.s_tir.tensor_intrin.hexagon import VRMPY_u8u8i32_INTRIN
assert TensorIntrin.get({other!r}) is not None
import tvm.s_tir.tensor_intrin as package
assert not hasattr(package, "no_such_module")
print("fine")
"""
X86, ARM = "dot_16x4_vnni", "dot_4x4_i8i8s32_neon"


@pytest.mark.parametrize(
    ("target", "own", "other"),
    [
        ({"kind": "llvm", "mcpu": "skylake-avx512"}, X86, ARM),
        pytest.param(
            {"kind": "llvm", "keys": ["arm_cpu", "cpu"], "mtriple": "aarch64-linux-gnu"},
            ARM,
            X86,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_processor_gets_its_own_intrinsics(target, own, other) -> None:
    found = subprocess.run(
        [sys.executable, "-c", CHECK.format(target=target, own=own, other=other)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert found.stdout.strip().endswith("fine"), found.stderr[-2000:]


def test_the_stack_read_quickly_is_the_one_that_python_reads() -> None:
    def both():
        return inspect.stack(), intrinsics._stack()

    slow, quick = both()
    assert len(slow) == len(quick) > 5
    for one, other in zip(slow[1:], quick[1:]):  # the first is `both`, at two places of one line
        assert one.frame is other.frame
        assert (one.filename, one.lineno, one.function) == (other.filename, other.lineno, other.function)
        assert one.code_context == other.code_context and one.index == other.index
    assert next(frame.code_context for frame in intrinsics._stack(0)) is None


WHOLE = """
import inspect
stack = inspect.stack
import wmsched.metaschedule.cost_model as backend
backend.WorldModelCostModel({bundle!r})
from tvm.s_tir import TensorIntrin, meta_schedule
assert inspect.stack is stack
assert TensorIntrin.get("wmma_sync_16x16x16_f16f16f32") and TensorIntrin.get("dot_16x4_vnni")
meta_schedule.TuneContext()
print("fine")
"""


@pytest.mark.slow  # tests of the GPUs' spaces import them all, without a look at the time
def test_a_model_made_first_imports_them_all_within_seconds(bundle) -> None:
    started = sum(os.times()[2:4])
    found = subprocess.run(
        [sys.executable, "-c", WHOLE.format(bundle=str(bundle))], capture_output=True, text=True, timeout=120
    )
    assert found.stdout.strip().endswith("fine"), found.stderr[-2000:]
    spent = sum(os.times()[2:4]) - started  # of the child: other tests may have the cores meanwhile
    assert spent < 60  # some 15, where TVM's own import takes a minute and longer
