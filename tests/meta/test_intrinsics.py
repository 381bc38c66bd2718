"""Only the intrinsics of the target are imported, and the others can be still."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHECK = """
import sys
from tvm.target import Target
from wmsched.backends.meta_intrinsics import import_intrinsics
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
        ({"kind": "llvm", "keys": ["arm_cpu", "cpu"], "mtriple": "aarch64-linux-gnu"}, ARM, X86),
    ],
)
def test_a_processor_gets_its_own_intrinsics(target, own, other) -> None:
    found = subprocess.run(
        [sys.executable, "-c", CHECK.format(target=target, own=own, other=other)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert found.stdout.strip().endswith("fine"), found.stderr[-2000:]
