"""CUDA source of tensor cores with TF32: what TVM's code generator does not write.

TF32 is float32 in memory, multiplied with 10 of its 23 bits of fraction. TVM writes matrices of `float`, that
CUDA has not: their type is `precision::tf32`, and each element is to be rounded after it is loaded. Works
around apache-tvm 0.27; remove when its code generator knows the type.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["KEY", "SHAPE", "completed", "install", "rounded"]

KEY = "tf32"  # among a target's keys: products of float32 may be computed so
SHAPE = (16, 16, 8)  # rows, columns and terms of CUDA's matrix operation
_MATRIX = re.compile(rf"(\bmatrix_[ab], {', '.join(map(str, SHAPE))}, )float\b")
_LOAD, _OWN = "nvcuda::wmma::load_matrix_sync(", "wmsched_load_tf32("
_FIRST_KERNEL = 'extern "C"'
_HELPER = """template <class Matrix>
__device__ __forceinline__ void wmsched_load_tf32(Matrix& to, const float* from, unsigned stride) {
  nvcuda::wmma::load_matrix_sync(to, from, stride);
#pragma unroll
  for (int k = 0; k < to.num_elements; ++k) to.x[k] = nvcuda::wmma::__float_to_tf32(to.x[k]);
}

"""
_CALLBACK = "tvm_callback_cuda_postproc"


def completed(source: str) -> str:
    """Return TVM's CUDA source with TF32's type and roundings; other sources as they are."""
    found, count = _MATRIX.subn(r"\1nvcuda::wmma::precision::tf32", source)
    if not count:
        return source
    kernel = found.index(_FIRST_KERNEL)
    return found[:kernel] + _HELPER + found[kernel:].replace(_LOAD, _OWN)


def install() -> None:
    """Have TVM complete its CUDA sources in this process; once is enough."""
    import tvm_ffi

    if tvm_ffi.get_global_func(_CALLBACK, allow_missing=True) is None:
        tvm_ffi.register_global_func(_CALLBACK, lambda code, *_: completed(str(code)))


def rounded(values: Any) -> Any:
    """Return float32 values of numpy rounded to TF32 as CUDA does: to the nearest, ties away from zero."""
    import numpy as np

    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
