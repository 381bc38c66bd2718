"""What a build for CUDA needs besides TVM's pipeline: short headers, asynchronous copies, a mended pass.

The pass works around apache-tvm 0.27: `StorageRewrite` lets a float32 array take over the shared memory of a
float16 array whose values are no longer needed. It changes the offset of a `tvm_access_ptr`, but leaves it
the other array's variable. `LowerIntrin` says "tvm_access_ptr element type must match the source buffer".
Tensor cores with half floats in and floats out always run into it. Functions with such pointers skip
`StorageRewrite`. `MergeSharedMemoryAllocations`, which comes later, shares the memory by lifetimes all the
same, and registers are the GPU compiler's. Remove when TVM rewrites these pointers.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from wmsched.base.wrapping import wrap_results
from wmsched.codegen import cuda_headers, tf32
from wmsched.codegen.tir_reader import has_node

#: Copies that a schedule marks as asynchronous become instructions; other schedules stay as they are.
CONFIG = {"tirx.use_async_copy": True}
SHARED_SCOPE = "shared.dyn"


def install() -> None:
    """Prepare this process for builds for CUDA; once is enough."""
    cuda_headers.install()
    tf32.install()
    wrap_results(tirx.transform, "StorageRewrite", _only_where_safe)


def settings(**config: Any) -> Any:
    """Return the context in which TVM builds for CUDA, with what the present one has."""
    present = tvm.transform.PassContext.current()
    kept = {str(name): value for name, value in present.config.items()}
    return tvm.transform.PassContext(opt_level=present.opt_level, config=kept | CONFIG | config)


def _only_where_safe(rewrite: Any) -> Any:
    """Return TVM's pass for a module's other functions."""

    @tvm.transform.module_pass(opt_level=0, name="wmsched.StorageRewrite")
    def run(module: Any, _: Any) -> Any:
        left = {name: each for name, each in module.functions.items() if _has_pointers(each)}
        if not left:
            return rewrite(module)
        others = {name: each for name, each in module.functions.items() if name not in left}
        found = rewrite(tvm.IRModule(others, attrs=module.attrs, global_infos=module.global_infos))
        found.update(tvm.IRModule(left, attrs=module.attrs))
        return found

    return run


def _has_pointers(function: Any) -> bool:
    """Return whether a kernel passes pointers into arrays of several types of its shared memory."""
    if not isinstance(function, tirx.PrimFunc):
        return False
    types: set[str] = set()
    pointers = False

    def see(node: Any) -> bool:
        nonlocal pointers
        if isinstance(node, tirx.AllocBuffer) and str(node.buffer.scope()) == SHARED_SCOPE:
            types.add(str(node.buffer.dtype))
        pointers |= (
            isinstance(node, tvm.ir.Call) and str(getattr(node.op, "name", "")) == "tirx.tvm_access_ptr"
        )
        return False

    has_node(function.body, see)
    return pointers and len(types) > 1
