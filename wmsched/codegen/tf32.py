"""CUDA source of tensor cores with TF32: what TVM's code generator does not write.

TF32 is float32 in memory, multiplied with 10 of its 23 bits of fraction. CUDA's matrices of it have the type
`precision::tf32`, and each element is to be rounded after it is loaded. TVM refuses to write matrices of
`float`. So they become matrices of `half` before TVM writes the source, which CUDA has in other shapes alone,
and TF32's in the source. Works around apache-tvm 0.27; remove when its code generator knows the type.
"""

from __future__ import annotations

import json
import re
from typing import Any

from wmsched.base.wrapping import wrap_results

__all__ = ["KEY", "SHAPE", "completed", "install", "retyped", "rounded"]

KEY = "tf32"  # among a target's keys: products of float32 may be computed so
SHAPE = (16, 16, 8)  # rows, columns and terms of CUDA's matrix operation
FLOAT, STAND_IN = "float32", "float16"
_SCOPES = ("wmma.matrix_a", "wmma.matrix_b")
_MATRIX = re.compile(rf"(\bmatrix_[ab], {', '.join(map(str, SHAPE))}, )half\b")
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
    """Have TVM write TF32 in this process; once is enough."""
    import tvm_ffi
    from tvm import s_tir

    if tvm_ffi.get_global_func(_CALLBACK, allow_missing=True) is None:
        tvm_ffi.register_global_func(_CALLBACK, lambda code, *_: completed(str(code)))
    wrap_results(s_tir.transform, "InferFragment", _retyped_after)


def _retyped_after(infer: Any) -> Any:
    """Return TVM's pass, and `retyped` after it."""
    import tvm
    from tvm import tirx

    from wmsched.codegen.tir_reader import has_node

    @tvm.transform.module_pass(opt_level=0, name="wmsched.InferFragment")
    def run(module: Any, _: Any) -> Any:
        found = infer(module)
        for name, function in found.functions_items():
            if isinstance(function, tirx.PrimFunc) and has_node(function.body, _is_float_matrix):
                found.update_func(name, retyped(function))
        return found

    return run


def _is_float_matrix(node: Any) -> bool:
    buffer: Any = getattr(node, "buffer", None)
    scope = getattr(buffer, "scope", None)
    return callable(scope) and str(scope()) in _SCOPES and str(buffer.dtype) == FLOAT


def retyped(function: Any) -> Any:
    """Return a TensorIR function whose float32 matrices of tensor cores are declared as half floats.

    Only TVM's matrix intrinsics name them, which go by the place of a matrix and not by its type. This TVM's
    TensorIR has no visitor in Python that changes a buffer wherever it is named; its JSON names each once.
    """
    import tvm

    graph = json.loads(tvm.ir.save_json(function))
    nodes = graph["nodes"]

    def of(node: dict[str, Any], field: str) -> Any:
        return nodes[node["data"][field]].get("data")

    types = {"tirx.BufferType": "dtype", "ir.PointerType": "element_type"}
    wanted = [
        node
        for node in nodes
        if node["type"] in types
        and of(node, "storage_scope") in _SCOPES
        and of(node, types[node["type"]])["dtype"] == FLOAT
    ]
    for node in wanted:
        field = types[node["type"]]
        stand_in = json.loads(json.dumps(nodes[node["data"][field]]))
        stand_in["data"]["dtype"] = STAND_IN
        nodes.append(stand_in)
        node["data"][field] = len(nodes) - 1
    return tvm.ir.load_json(json.dumps(graph))


def rounded(values: Any) -> Any:
    """Return float32 values of numpy rounded to TF32 as CUDA does: to the nearest, ties away from zero."""
    import numpy as np

    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
