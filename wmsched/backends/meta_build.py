"""Builds a MetaSchedule candidate without an import that takes longer than the build."""

from __future__ import annotations

from typing import Any


def build(module: Any, target: Any, parameters: Any = None) -> Any:
    """What MetaSchedule's `default_build` does, without its import of all tensor intrinsics.

    That import takes more than twenty seconds of processor time, in every worker of every batch: where the
    processor is shared, longer than a build may take. The schedule that is built has its intrinsics already.
    Goes into ``LocalBuilder(f_build=)``.
    """
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    if target.kind.name == "cuda":
        from wmsched.codegen import cuda_headers

        cuda_headers.install()
    with target:  # NVRTC is told the architecture of the target, not of the GPU at hand, which may be none
        return tvm.driver.build(
            RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target
        )


def build_with_vector_math(module: Any, target: Any, parameters: Any = None) -> Any:
    """The same, with exp, tanh and the like in vectors (`wmsched.codegen.register`)."""
    import tvm

    from wmsched.codegen.register import CONFIG

    with tvm.transform.PassContext(config=CONFIG):
        return build(module, target, parameters)
